#include "profiler/dense_order.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <span>
#include <utility>

#include "base/check.h"
#include "engine/kv/policies/adaptive_tokens.h"
#include "engine/kv/policies/policies.h"
#include "engine/kv/policy.h"
#include "profiler/evaluation/token_metrics.h"
#include "profiler/head_elimination.h"

namespace headroom::profiler {
namespace {

using engine::HeadMap;
using engine::HeadType;
using engine::kPpm;

// Leads and floors are left out: what heads that are not dense hold does not depend on the others.
// Heads hold content alone, and are exchanged, at the retention where the order matters most.
constexpr engine::AdaptiveSettings kSettings = {
    .floor_entries = 0, .oldest_entries = 0, .content_retention_ppm = 100'000};

// Dense heads by probe score, at most options.num_heads.
std::vector<size_t> Tried(const HeadMap& map, const DenseOrderOptions& options) {
  std::vector<size_t> heads;
  for (size_t i = 0; i < map.heads.size(); ++i) {
    if (map.heads[i].type == HeadType::kDense && map.heads[i].probe_ppm() > 0) {
      heads.push_back(i);
    }
  }
  std::stable_sort(heads.begin(), heads.end(), [&map](size_t a, size_t b) {
    return map.heads[a].probe_ppm() > map.heads[b].probe_ppm();
  });
  heads.resize(std::min(heads.size(), static_cast<size_t>(options.num_heads)));
  return heads;
}

// What is compressed, and what is fed behind it up to the answer's last token.
struct Sample {
  DecodingSequence source;
  engine::KvPolicySpec spec;
  int64_t num_tokens = 0;
  int64_t mandatory = 0;  // of num_tokens
  int64_t content = 0;    // of the others what is no punctuation
  std::vector<int32_t> fed;
  size_t first_scored = 0;      // row of `fed` whose logits predict the first scored token
  std::vector<int32_t> scored;  // the last tokens of the answer
  bool is_answered = true;      // by the full cache
};

class Search {
 public:
  Search(const EvalModel& model, const DenseOrderOptions& options, const HeadMap& map,
         EvalObserver& observer)
      : options_(options), map_(map), observer_(observer) {
    map_.spend.clear();
    for (engine::HeadEntry& head : map_.heads) {
      SetType(head, HeadType::kSpecial);
      head.fill_rank = -1;
    }
    std::vector<size_t> all(map_.heads.size());
    std::iota(all.begin(), all.end(), size_t{0});
    policies_.Add(MakePolicy(all));  // sources have all scores
    model_ = std::make_unique<EvalModel>(EvalModel{.model = model.model,
                                                   .backend = model.backend,
                                                   .policies = policies_,
                                                   .clock = model.clock,
                                                   .shape = model.shape,
                                                   .attention_scale = model.attention_scale,
                                                   .max_rows = model.max_rows,
                                                   .token_classes = model.token_classes});
  }
  ~Search() {
    for (Sample& sample : samples_) {
      runner().Close(sample.source);
    }
  }
  Search(const Search&) = delete;
  Search& operator=(const Search&) = delete;

  // Of the prompts those that the full cache answers: what it cannot answer says little of what a
  // smaller one needs. Where it answers none, all of them; as many as may be held.
  Status Open(const std::vector<NeedlePrompt>& prompts) {
    int32_t longest = 1;
    for (const NeedlePrompt& prompt : prompts) {
      longest = std::max(longest, TokensOf(prompt));
    }
    const int64_t most =
        std::clamp<int64_t>(options_.max_tokens / longest, 1, std::max(options_.num_samples, 1));
    const std::vector<EvalRow> rows = {ReferenceRow(options_.kv_dtype)};
    HEADROOM_ASSIGN_OR_RETURN(caches_, CacheSet::Create(*model_, rows, longest, most + 2));
    for (const bool answered_only : {true, false}) {
      for (const NeedlePrompt& prompt : prompts) {
        if (observer_.Cancelled()) {
          return CancelledStatus();
        }
        if (std::ssize(samples_) == most) {
          return OkStatus();
        }
        samples_.push_back(OpenSample(prompt));
        if (answered_only && !samples_.back().is_answered) {
          runner().Close(samples_.back().source);
          samples_.pop_back();
        }
      }
      if (!samples_.empty()) {
        break;
      }
    }
    return OkStatus();
  }

  // Tried heads, the most valuable first.
  StatusOr<std::vector<size_t>> Order(const std::vector<size_t>& tried) {
    const EliminationOptions elimination = {.num_exchanged = NumExchanged()};
    total_ = EliminationWork(tried.size(), samples_.size(), elimination);
    return OrderByElimination(tried, samples_.size(), elimination,
                              [this](const std::vector<size_t>& dense, size_t begin, size_t end) {
                                return LossOf(dense, begin, end);
                              });
  }

 private:
  int64_t num_heads() const { return static_cast<int64_t>(map_.heads.size()); }

  // Entries of a head, on average, where dense heads hold content alone at most.
  static int64_t ContentEntries(const Sample& sample) {
    return engine::ScalePpm(kSettings.content_retention_ppm, sample.num_tokens);
  }

  // How many heads hold content then, to the nearest: exchanges are tried when so many are left.
  size_t NumExchanged() const {
    int64_t entries = 0;
    int64_t content = 0;
    for (const Sample& sample : samples_) {
      entries += std::max<int64_t>(ContentEntries(sample) - sample.mandatory, 0) * num_heads();
      content += sample.content;
    }
    return content == 0 ? 0 : static_cast<size_t>((2 * entries + content) / (2 * content));
  }

  static void SetType(engine::HeadEntry& head, HeadType type) {
    head.type = type;
    head.borderline = false;
    head.confidence_ppm = kPpm;
  }

  SequenceRunner& runner() { return caches_->runner(options_.kv_dtype); }

  int32_t TokensOf(const NeedlePrompt& prompt) const {
    const size_t answer = prompt.is_text()
                              ? std::max(static_cast<size_t>(options_.max_answer),
                                         prompt.lead.size() + prompt.candidates.front().size())
                              : prompt.answer.size();
    return static_cast<int32_t>(prompt.ids.size() + answer);
  }

  std::unique_ptr<engine::KvPolicy> MakePolicy(const std::vector<size_t>& dense) const {
    auto map = std::make_shared<HeadMap>(map_);
    for (const size_t head : dense) {
      SetType(map->heads[head], HeadType::kDense);
    }
    return engine::MakeAdaptivePolicy(std::move(map), "balanced", kSettings);
  }

  Sample OpenSample(const NeedlePrompt& prompt) {
    Sample sample;
    PromptTokens context;
    context.ids.assign(prompt.ids.begin(), prompt.ids.begin() + prompt.split);
    context.content_end = prompt.split;
    const engine::PromptTokens tokens(
        {.num_tokens = prompt.split,
         .content_end = prompt.split,
         .classes = engine::ClassifyPrompt(model_->token_classes, context.ids)},
        sample.spec.sink_tokens, std::max(sample.spec.window, kSettings.recent_tokens));
    sample.num_tokens = prompt.split;
    sample.mandatory = tokens.num_mandatory();
    sample.content = tokens.NumContent(/*num_newest=*/0);
    sample.fed.assign(prompt.ids.begin() + prompt.split, prompt.ids.end());
    sample.spec.policy = "adaptive";
    sample.spec.min_prompt = 0;
    sample.spec.tsp_min_prompt = 0;
    sample.spec.options.dense_share_ppm = kPpm;
    sample.spec.options.local_share_ppm = 0;
    SetRetention(sample, map_.heads.size() / 2);
    const engine::KvPolicySpec full = ReferenceRow(options_.kv_dtype).spec;
    const std::vector<engine::KvPolicySpec> specs = {sample.spec, full};
    sample.source = runner().PrefillSource(context, specs);
    std::vector<int32_t> answer = prompt.answer;
    size_t num_scored = answer.size();
    if (prompt.is_text()) {
      const std::vector<int32_t>& code = prompt.candidates.front();
      DecodingSequence sequence = runner().OpenFrom(sample.source, full);
      answer = OwnAnswer(sequence, sample.fed, code);
      runner().Close(sequence);
      sample.is_answered = !answer.empty();
      if (answer.empty()) {
        answer = prompt.lead;
        answer.insert(answer.end(), code.begin(), code.end());
      }
      // Words before the code may be others; the token before it says that the code follows.
      num_scored = std::min(answer.size(), code.size() + 1);
    }
    sample.fed.insert(sample.fed.end(), answer.begin(), answer.end() - 1);
    sample.first_scored = sample.fed.size() - num_scored;
    sample.scored.assign(answer.end() - static_cast<ptrdiff_t>(num_scored), answer.end());
    return sample;
  }

  // What the full cache says greedily up to the end of `code`; empty where it does not say it.
  std::vector<int32_t> OwnAnswer(DecodingSequence& sequence, const std::vector<int32_t>& question,
                                 const std::vector<int32_t>& code) {
    std::vector<float> logits;
    runner().Feed(sequence, question, &logits);
    std::vector<int32_t> answer;
    while (static_cast<int32_t>(answer.size()) < options_.max_answer) {
      answer.push_back(TopToken(sequence.last_logits));
      if (std::find(options_.eos_token_ids.begin(), options_.eos_token_ids.end(), answer.back()) !=
          options_.eos_token_ids.end()) {
        break;
      }
      if (answer.size() >= code.size() &&
          std::equal(code.begin(), code.end(),
                     answer.end() - static_cast<ptrdiff_t>(code.size()))) {
        return answer;
      }
      runner().Feed(sequence, std::span(answer).last(1), &logits);
    }
    return {};
  }

  // What `num_dense` heads need beside the mandatory entries of all: their content where that is
  // all they get, else all tokens. Rounded up to one entry more of each head.
  void SetRetention(Sample& sample, size_t num_dense) const {
    const auto entries_of = [&](int64_t held) {
      const int64_t entries = static_cast<int64_t>(num_dense) * held;
      return sample.mandatory + (entries + num_heads() - 1) / num_heads();
    };
    int64_t entries = entries_of(sample.content);
    if (entries > ContentEntries(sample)) {
      entries = entries_of(sample.num_tokens - sample.mandatory);
    }
    sample.spec.retention_ppm = std::clamp<int64_t>(
        (entries * kPpm + sample.num_tokens - 1) / sample.num_tokens, 1, kPpm - 1);
  }

  // How many of the answers of samples [begin, end) are not to be expected when only `dense` hold
  // more than mandatory tokens. A likelihood would be ruled by the few that no small cache keeps.
  StatusOr<double> LossOf(const std::vector<size_t>& dense, size_t begin, size_t end) {
    // Replaces the one before; the sources are read already and ask for the same scores.
    policies_.Add(MakePolicy(dense));
    const auto vocab = static_cast<size_t>(runner().vocab_size());
    double sum = 0.0;
    std::vector<float> logits;
    for (size_t k = begin; k < end; ++k) {
      if (observer_.Cancelled()) {
        return CancelledStatus();
      }
      Sample& sample = samples_[k];
      SetRetention(sample, dense.size());
      DecodingSequence sequence = runner().OpenFrom(sample.source, sample.spec);
      runner().Feed(sequence, sample.fed, &logits);
      double nll = 0.0;
      for (size_t i = 0; i < sample.scored.size(); ++i) {
        const auto row = std::span(logits).subspan((sample.first_scored + i) * vocab, vocab);
        nll += TokenNll(row, sample.scored[i]);
      }
      sum += 1.0 - std::exp(-nll);
      runner().Close(sequence);
      ++done_;
      observer_.Progress(done_, std::max(done_, total_),
                         fmt::format("order of dense heads: {} left", dense.size()));
    }
    return sum;
  }

  const DenseOrderOptions options_;
  HeadMap map_;
  EvalObserver& observer_;
  engine::KvPolicyRegistry policies_;
  std::unique_ptr<EvalModel> model_;
  std::unique_ptr<CacheSet> caches_;
  std::vector<Sample> samples_;
  int64_t done_ = 0;
  int64_t total_ = 0;
};

// Prompts with a known answer and a question behind the context.
std::vector<NeedlePrompt> Usable(const std::vector<NeedlePrompt>& prompts) {
  std::vector<NeedlePrompt> usable;
  for (const NeedlePrompt& prompt : prompts) {
    const bool has_answer =
        !prompt.is_text() ||
        (!prompt.candidates.empty() && !(prompt.lead.empty() && prompt.candidates.front().empty()));
    if (has_answer && prompt.split > 0 && static_cast<size_t>(prompt.split) < prompt.ids.size()) {
      usable.push_back(prompt);
    }
  }
  return usable;
}

}  // namespace

StatusOr<std::vector<int32_t>> OrderDenseHeads(const EvalModel& model,
                                               const std::vector<NeedlePrompt>& prompts,
                                               const DenseOrderOptions& options, const HeadMap& map,
                                               EvalObserver& observer) {
  std::vector<int32_t> ranks(map.heads.size(), -1);
  const std::vector<size_t> tried = Tried(map, options);
  const std::vector<NeedlePrompt> usable = Usable(prompts);
  if (tried.size() < 2 || usable.empty()) {
    return ranks;
  }
  Search search(model, options, map, observer);
  HEADROOM_RETURN_IF_ERROR(search.Open(usable));
  HEADROOM_ASSIGN_OR_RETURN(const std::vector<size_t> order, search.Order(tried));
  for (size_t i = 0; i < order.size(); ++i) {
    ranks[order[i]] = static_cast<int32_t>(i);
  }
  return ranks;
}

}  // namespace headroom::profiler
