#include "profiler/evaluation/needles.h"

#include <algorithm>
#include <span>

#include "base/check.h"
#include "profiler/evaluation/prompt_source.h"
#include "profiler/evaluation/token_metrics.h"

namespace headroom::profiler {
namespace {

// One prompt under one protocol: what is compressed, and what is fed behind it.
class PromptRun {
 public:
  PromptRun(const NeedlePrompt& prompt, Protocol protocol, const NeedleOptions& options,
            const std::vector<EvalRow>& rows, CacheSet& caches)
      : prompt_(prompt), options_(options), caches_(caches), sources_(compressed_, rows, caches) {
    const bool is_aware = protocol == Protocol::kAware;
    const auto split = prompt.ids.begin() +
                       (is_aware ? static_cast<int64_t>(prompt.ids.size()) : int64_t{prompt.split});
    compressed_.ids.assign(prompt.ids.begin(), split);
    compressed_.content_end = is_aware ? prompt.content_end : prompt.split;
    fed_.assign(split, prompt.ids.end());
  }

  NeedleScore Score(const EvalRow& row) {
    SequenceRunner& runner = caches_.runner(row.kv_dtype);
    NeedleScore score;
    DecodingSequence sequence = sources_.at(row.kv_dtype).Open(row.spec);
    score.cost = caches_.CostAfterPrefill(sequence, row.kv_dtype);
    std::vector<float> logits;
    runner.Feed(sequence, fed_, &logits);
    DecodingSequence answering = runner.Fork(sequence);
    if (prompt_.is_text()) {
      score.right = GeneratesAnswer(runner, answering);
    } else {
      MatchAnswer(runner, answering, &score);
    }
    score.cost.physical_bytes_end = caches_.PhysicalBytes(answering, row.kv_dtype);
    runner.Close(answering);
    if (!prompt_.candidates.empty()) {
      runner.Feed(sequence, prompt_.lead, &logits);
      Rank(runner.ScoreCandidates(sequence, prompt_.candidates), &score);
    }
    runner.Close(sequence);
    return score;
  }

 private:
  // Gives the first token and compares each greedy one behind it. Where the model would have said
  // the first token itself, this is its own answer.
  void MatchAnswer(SequenceRunner& runner, DecodingSequence& sequence, NeedleScore* score) const {
    const std::vector<int32_t>& answer = prompt_.answer;
    const bool first_right = TopToken(sequence.last_logits) == answer.front();
    score->right_after_first = true;
    std::vector<float> logits;
    for (size_t i = 1; i < answer.size() && score->right_after_first; ++i) {
      runner.Feed(sequence, std::span<const int32_t>(answer).subspan(i - 1, 1), &logits);
      score->right_after_first = TopToken(sequence.last_logits) == answer[i];
    }
    score->right = first_right && score->right_after_first;
  }

  // Greedy text until it holds the answer, ends, or is too long.
  bool GeneratesAnswer(SequenceRunner& runner, DecodingSequence& sequence) const {
    std::string text;
    std::vector<float> logits;
    for (int32_t i = 0; i < options_.max_new_tokens; ++i) {
      const int32_t token = TopToken(sequence.last_logits);
      if (std::find(options_.eos_token_ids.begin(), options_.eos_token_ids.end(), token) !=
          options_.eos_token_ids.end()) {
        return false;
      }
      text += options_.tokenizer->TokenBytes(token);
      if (text.find(prompt_.answer_text) != std::string::npos) {
        return true;
      }
      if (i + 1 < options_.max_new_tokens) {
        runner.Feed(sequence, std::span<const int32_t>(&token, 1), &logits);
      }
    }
    return false;
  }

  static void Rank(const std::vector<double>& sums, NeedleScore* score) {
    // Equal sums count against the right one: a cache that tells nothing apart ranks it last.
    score->rank = static_cast<int32_t>(std::count_if(sums.begin() + 1, sums.end(),
                                                     [&](double sum) { return sum >= sums[0]; })) +
                  1;
    score->margin = sums[0] - *std::max_element(sums.begin() + 1, sums.end());
  }

  const NeedlePrompt& prompt_;
  const NeedleOptions& options_;
  CacheSet& caches_;
  PromptTokens compressed_;
  PromptSources sources_;  // of compressed_
  std::vector<int32_t> fed_;
};

}  // namespace

int32_t TokensNeeded(const NeedlePrompt& prompt, const NeedleOptions& options) {
  size_t behind =
      prompt.is_text() ? static_cast<size_t>(options.max_new_tokens) : prompt.answer.size();
  if (!prompt.candidates.empty()) {
    behind = std::max(behind, prompt.lead.size() + prompt.candidates.front().size());
  }
  return static_cast<int32_t>(prompt.ids.size() + behind);
}

int64_t NeedleWork(const NeedleTask& task, const NeedleOptions& options,
                   const std::vector<EvalRow>& rows) {
  int64_t tokens = 0;
  for (const NeedlePrompt& prompt : task.prompts) {
    tokens += static_cast<int64_t>(prompt.ids.size());
  }
  const auto num_running =
      std::count_if(rows.begin(), rows.end(), [](const EvalRow& row) { return row.runs(); });
  return tokens * num_running * static_cast<int64_t>(options.protocols.size());
}

Status MeasureNeedles(const NeedleTask& task, const NeedleOptions& options,
                      const std::vector<EvalRow>& rows, CacheSet& caches, EvalObserver& observer,
                      std::vector<NeedleReport>* reports) {
  HEADROOM_CHECK(!task.prompts.empty());
  const int64_t total = NeedleWork(task, options, rows);
  int64_t done = 0;
  for (const Protocol protocol : options.protocols) {
    NeedleReport report;
    report.task = task.name;
    report.protocol = protocol;
    report.is_text = task.prompts.front().is_text();
    report.scores.assign(rows.size(), {});
    for (const NeedlePrompt& prompt : task.prompts) {
      report.prompts.push_back({.id = prompt.id,
                                .length = prompt.length,
                                .depth = prompt.depth,
                                .num_candidates = static_cast<int32_t>(prompt.candidates.size())});
      PromptRun run(prompt, protocol, options, rows, caches);
      for (size_t r = 0; r < rows.size(); ++r) {
        if (!rows[r].runs()) {
          continue;
        }
        if (observer.Cancelled()) {
          return CancelledStatus();
        }
        report.scores[r].push_back(run.Score(rows[r]));
        done += static_cast<int64_t>(prompt.ids.size());
        observer.Progress(done, total, fmt::format("{}: {}", prompt.id, RowLabel(rows[r])));
      }
      observer.Finished(fmt::format("{} {}", prompt.id, ProtocolName(protocol)),
                        static_cast<int64_t>(report.prompts.size()),
                        static_cast<int64_t>(task.prompts.size()));
    }
    reports->push_back(std::move(report));
  }
  return OkStatus();
}

}  // namespace headroom::profiler
