#include "profiler/dense_order.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "base/check.h"
#include "engine/kv/policies/policies.h"
#include "engine/kv/policy.h"
#include "profiler/evaluation/token_metrics.h"

namespace headroom::profiler {
namespace {

using engine::HeadMap;
using engine::HeadType;
using engine::kPpm;

// Mandatory entries of a head, about: sinks, the last tokens, special tokens of a template.
constexpr int64_t kMandatoryEntries = 32;

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

// How many heads go after a round over `left` ones.
size_t DropsOf(size_t left, const DenseOrderOptions& options) {
  return left > static_cast<size_t>(options.num_single) + 1 ? 2 : 1;
}

// What is compressed, and what is fed behind it up to the answer's last token.
struct Sample {
  DecodingSequence source;
  engine::KvPolicySpec spec;
  int64_t num_tokens = 0;
  std::vector<int32_t> fed;
  size_t first_scored = 0;  // row of `fed` whose logits predict the first scored token
  std::vector<int32_t> scored;
};

class Search {
 public:
  Search(const EvalModel& model, const DenseOrderOptions& options, const HeadMap& map,
         EvalObserver& observer)
      : options_(options), map_(map), observer_(observer) {
    map_.spend.clear();
    for (engine::HeadEntry& head : map_.heads) {
      head.type = std::min(head.type, HeadType::kHeavy);
      head.fill_rank = -1;
    }
    policies_.Add(MakePolicy({}));
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

  Status Open(const std::vector<NeedlePrompt>& prompts) {
    int32_t longest = 1;
    for (const NeedlePrompt& prompt : prompts) {
      longest = std::max(longest, TokensOf(prompt));
    }
    const std::vector<EvalRow> rows = {ReferenceRow(options_.kv_dtype)};
    HEADROOM_ASSIGN_OR_RETURN(caches_, CacheSet::Create(*model_, rows, longest,
                                                        static_cast<int64_t>(prompts.size()) + 2));
    for (const NeedlePrompt& prompt : prompts) {
      if (observer_.Cancelled()) {
        return CancelledStatus();
      }
      samples_.push_back(OpenSample(prompt));
    }
    return OkStatus();
  }

  // Tried heads, the most valuable first.
  StatusOr<std::vector<size_t>> Order(std::vector<size_t> left, int64_t total) {
    std::vector<size_t> gone;  // the least valuable first
    while (left.size() > 1) {
      std::vector<std::pair<double, size_t>> losses;  // without left[i]
      for (size_t i = 0; i < left.size(); ++i) {
        std::vector<size_t> dense = left;
        dense.erase(dense.begin() + static_cast<ptrdiff_t>(i));
        HEADROOM_ASSIGN_OR_RETURN(const double loss, LossWith(dense, total));
        losses.emplace_back(loss, i);
      }
      // Of equal ones the one with the lower probe score goes first.
      std::stable_sort(losses.begin(), losses.end(), [](const auto& a, const auto& b) {
        return a.first != b.first ? a.first < b.first : a.second > b.second;
      });
      std::vector<size_t> dropped;
      for (size_t i = 0; i < DropsOf(left.size(), options_); ++i) {
        dropped.push_back(left[losses[i].second]);
      }
      for (const size_t head : dropped) {
        gone.push_back(head);
        left.erase(std::find(left.begin(), left.end(), head));
      }
    }
    gone.insert(gone.end(), left.begin(), left.end());
    std::reverse(gone.begin(), gone.end());
    return gone;
  }

 private:
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
      map->heads[head].type = HeadType::kDense;
      map->heads[head].borderline = false;
      map->heads[head].confidence_ppm = kPpm;
    }
    return engine::MakeAdaptivePolicy(std::move(map), "balanced", {.floor_entries = 0});
  }

  Sample OpenSample(const NeedlePrompt& prompt) {
    Sample sample;
    PromptTokens context;
    context.ids.assign(prompt.ids.begin(), prompt.ids.begin() + prompt.split);
    context.content_end = prompt.split;
    sample.num_tokens = prompt.split;
    sample.fed.assign(prompt.ids.begin() + prompt.split, prompt.ids.end());
    sample.first_scored = sample.fed.size() - 1;
    sample.spec.policy = "adaptive";
    sample.spec.min_prompt = 0;
    sample.spec.tsp_min_prompt = 0;
    sample.spec.options.dense_share_ppm = kPpm;
    sample.spec.options.local_share_ppm = 0;
    SetRetention(sample, map_.heads.size() / 2);
    const engine::KvPolicySpec full = ReferenceRow(options_.kv_dtype).spec;
    const std::vector<engine::KvPolicySpec> specs = {sample.spec, full};
    sample.source = runner().PrefillSource(context, specs);
    if (prompt.is_text()) {
      DecodingSequence sequence = runner().OpenFrom(sample.source, full);
      sample.scored = OwnAnswer(sequence, sample.fed, prompt.candidates.front());
      runner().Close(sequence);
      if (sample.scored.empty()) {
        sample.scored = prompt.lead;
        sample.scored.insert(sample.scored.end(), prompt.candidates.front().begin(),
                             prompt.candidates.front().end());
      }
    } else {
      sample.scored = prompt.answer;
    }
    sample.fed.insert(sample.fed.end(), sample.scored.begin(), sample.scored.end() - 1);
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
      if (answer.size() >= code.size() &&
          std::equal(code.begin(), code.end(),
                     answer.end() - static_cast<ptrdiff_t>(code.size()))) {
        return answer;
      }
      runner().Feed(sequence, std::span(answer).last(1), &logits);
    }
    return {};
  }

  // What `num_dense` whole heads need beside the mandatory entries of the others.
  void SetRetention(Sample& sample, size_t num_dense) const {
    const auto heads = static_cast<int64_t>(map_.heads.size());
    const auto dense = static_cast<int64_t>(num_dense);
    const int64_t others = std::min(sample.num_tokens, kMandatoryEntries);
    const int64_t entries = dense * sample.num_tokens + (heads - dense) * others;
    sample.spec.retention_ppm = std::clamp<int64_t>(
        (entries * kPpm + heads * sample.num_tokens - 1) / (heads * sample.num_tokens), 1,
        kPpm - 1);
  }

  // Mean negative log-likelihood of the right answers when only `dense` are whole.
  StatusOr<double> LossWith(const std::vector<size_t>& dense, int64_t total) {
    // Replaces the one before; the sources are read already and ask for the same scores.
    policies_.Add(MakePolicy(dense));
    const auto vocab = static_cast<size_t>(runner().vocab_size());
    double sum = 0.0;
    std::vector<float> logits;
    for (Sample& sample : samples_) {
      if (observer_.Cancelled()) {
        return CancelledStatus();
      }
      SetRetention(sample, dense.size());
      DecodingSequence sequence = runner().OpenFrom(sample.source, sample.spec);
      runner().Feed(sequence, sample.fed, &logits);
      for (size_t i = 0; i < sample.scored.size(); ++i) {
        sum += TokenNll(std::span(logits).subspan((sample.first_scored + i) * vocab, vocab),
                        sample.scored[i]);
      }
      runner().Close(sequence);
      observer_.Progress(++done_, total,
                         fmt::format("order of dense heads: {} left", dense.size()));
    }
    return sum / static_cast<double>(samples_.size());
  }

  const DenseOrderOptions options_;
  HeadMap map_;
  EvalObserver& observer_;
  engine::KvPolicyRegistry policies_;
  std::unique_ptr<EvalModel> model_;
  std::unique_ptr<CacheSet> caches_;
  std::vector<Sample> samples_;
  int64_t done_ = 0;
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

int64_t DenseOrderWork(const HeadMap& map, size_t num_prompts, const DenseOrderOptions& options) {
  int64_t work = 0;
  for (size_t left = Tried(map, options).size(); left > 1; left -= DropsOf(left, options)) {
    work += static_cast<int64_t>(left * num_prompts);
  }
  return work;
}

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
  HEADROOM_ASSIGN_OR_RETURN(const std::vector<size_t> order,
                            search.Order(tried, DenseOrderWork(map, usable.size(), options)));
  for (size_t i = 0; i < order.size(); ++i) {
    ranks[order[i]] = static_cast<int32_t>(i);
  }
  return ranks;
}

}  // namespace headroom::profiler
