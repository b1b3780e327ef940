#include "profiler/evaluation/fidelity.h"

#include <algorithm>
#include <span>

#include "profiler/evaluation/prompt_source.h"

namespace headroom::profiler {
namespace {

// The reference's view of one document.
struct Reference {
  std::vector<float> logits;          // [scored, vocab]
  std::vector<double> nll;            // [scored]
  std::vector<uint8_t> is_key_token;  // [scored]
};

// One document under every row.
class DocumentRun {
 public:
  DocumentRun(const Document& document, const FidelityOptions& options,
              const std::vector<EvalRow>& rows, CacheSet& caches)
      : options_(options),
        rows_(rows),
        caches_(caches),
        continuation_(document.ids.end() - options.continuation_tokens, document.ids.end()),
        sources_(prefix_, rows, caches) {
    prefix_.ids.assign(document.ids.begin(), document.ids.end() - options.continuation_tokens);
    prefix_.content_end = static_cast<int32_t>(prefix_.ids.size());
    info_.id = document.id;
    info_.source = document.source;
    info_.num_tokens = static_cast<int32_t>(document.ids.size());
    info_.prefix_tokens = prefix_.content_end;
    info_.num_scored = options.continuation_tokens - 1;
  }

  // Fills the reference and returns its score, which is zero by definition.
  DocumentScore ScoreReference() {
    std::vector<float>& logits = reference_.logits;
    DocumentScore score;
    score.cost = Continue(rows_.front(), &logits);
    score.top1 = 1.0;
    for (int32_t i = 0; i < info_.num_scored; ++i) {
      reference_.nll.push_back(TokenNll(Row(logits, i), ScoredToken(i)));
      info_.full_nll += reference_.nll.back();
    }
    info_.full_nll /= info_.num_scored;
    reference_.is_key_token = KeyTokens(reference_.nll, ShortContextNll(), options_.key_tokens);
    info_.num_key_tokens = static_cast<int32_t>(
        std::count(reference_.is_key_token.begin(), reference_.is_key_token.end(), 1));
    score.key_agreements = info_.num_key_tokens;
    return score;
  }

  DocumentScore Score(const EvalRow& row) {
    std::vector<float> logits;
    DocumentScore score;
    score.cost = Continue(row, &logits);
    std::vector<double> divergences;
    for (int32_t i = 0; i < info_.num_scored; ++i) {
      const TokenScore token =
          CompareLogits(Row(reference_.logits, i), Row(logits, i), ScoredToken(i));
      const double delta = token.nll - reference_.nll[static_cast<size_t>(i)];
      score.delta_nll += delta;
      score.mean_kl += token.kl;
      score.top1 += token.top1_agrees ? 1.0 : 0.0;
      divergences.push_back(token.kl);
      if (reference_.is_key_token[static_cast<size_t>(i)] != 0) {
        score.key_delta_nll_sum += delta;
        score.key_agreements += token.top1_agrees ? 1 : 0;
      }
    }
    score.delta_nll /= info_.num_scored;
    score.mean_kl /= info_.num_scored;
    score.top1 /= info_.num_scored;
    score.p99_kl = Quantile(std::move(divergences), 0.99);
    return score;
  }

  const DocumentInfo& info() const { return info_; }

 private:
  int32_t ScoredToken(int32_t index) const { return continuation_[static_cast<size_t>(index) + 1]; }

  std::span<const float> Row(const std::vector<float>& logits, int32_t index) const {
    const size_t vocab = logits.size() / static_cast<size_t>(info_.num_scored);
    return std::span<const float>(logits).subspan(static_cast<size_t>(index) * vocab, vocab);
  }

  // Compresses the prefix and feeds all of the continuation but its last token.
  KvCost Continue(const EvalRow& row, std::vector<float>* logits) {
    SequenceRunner& runner = caches_.runner(row.kv_dtype);
    DecodingSequence sequence = sources_.at(row.kv_dtype).Open(row.spec);
    KvCost cost = caches_.CostAfterPrefill(sequence, row.kv_dtype);
    runner.Feed(sequence, std::span<const int32_t>(continuation_).first(continuation_.size() - 1),
                logits);
    cost.physical_bytes_end = caches_.PhysicalBytes(sequence, row.kv_dtype);
    runner.Close(sequence);
    return cost;
  }

  // NLL of the scored tokens with nothing but the tokens just before them, as fresh prompts.
  std::vector<double> ShortContextNll() {
    SequenceRunner& runner = caches_.runner(rows_.front().kv_dtype);
    std::vector<int32_t> ids = prefix_.ids;
    ids.insert(ids.end(), continuation_.begin(), continuation_.end());
    const int32_t end = info_.num_tokens;
    std::vector<double> nll;
    std::vector<float> logits;
    for (int32_t target = info_.prefix_tokens + 1; target < end; target += options_.short_stride) {
      const int32_t count = std::min(options_.short_stride, end - target);
      const int32_t begin = std::max(0, target - (options_.short_context - options_.short_stride));
      PromptTokens context;
      context.ids.assign(ids.begin() + begin, ids.begin() + target);
      context.content_end = target - begin;
      DecodingSequence sequence = runner.Prefill(context, rows_.front().spec);
      nll.push_back(TokenNll(sequence.last_logits, ids[static_cast<size_t>(target)]));
      runner.Feed(sequence,
                  std::span<const int32_t>(ids).subspan(static_cast<size_t>(target),
                                                        static_cast<size_t>(count) - 1),
                  &logits);
      const auto vocab = static_cast<size_t>(runner.vocab_size());
      for (int32_t i = 0; i + 1 < count; ++i) {
        nll.push_back(
            TokenNll(std::span<const float>(logits).subspan(static_cast<size_t>(i) * vocab, vocab),
                     ids[static_cast<size_t>(target + 1 + i)]));
      }
      runner.Close(sequence);
    }
    return nll;
  }

  const FidelityOptions& options_;
  const std::vector<EvalRow>& rows_;
  CacheSet& caches_;
  const std::vector<int32_t> continuation_;
  PromptTokens prefix_;
  PromptSources sources_;  // of prefix_
  DocumentInfo info_;
  Reference reference_;
};

}  // namespace

Status CheckDocuments(const std::vector<Document>& documents, const FidelityOptions& options,
                      int32_t max_context) {
  for (const Document& document : documents) {
    const size_t tokens = document.ids.size();
    if (tokens <= static_cast<size_t>(options.continuation_tokens)) {
      return InvalidArgument("document {}: {} tokens, wanted more than the {} of the continuation",
                             document.id, tokens, options.continuation_tokens);
    }
    if (tokens > static_cast<size_t>(max_context)) {
      return InvalidArgument("document {}: {} tokens, wanted at most the context of {}",
                             document.id, tokens, max_context);
    }
  }
  return OkStatus();
}

int64_t FidelityWork(const std::vector<Document>& documents, const std::vector<EvalRow>& rows) {
  int64_t tokens = 0;
  for (const Document& document : documents) {
    tokens += static_cast<int64_t>(document.ids.size());
  }
  return tokens *
         std::count_if(rows.begin(), rows.end(), [](const EvalRow& row) { return row.runs(); });
}

Status MeasureFidelity(const std::vector<Document>& documents, const FidelityOptions& options,
                       const std::vector<EvalRow>& rows, CacheSet& caches, EvalObserver& observer,
                       FidelityReport* report) {
  report->continuation_tokens = options.continuation_tokens;
  report->scores.assign(rows.size(), {});
  int64_t done = 0;
  const int64_t total = FidelityWork(documents, rows);
  for (size_t d = 0; d < documents.size(); ++d) {
    DocumentRun run(documents[d], options, rows, caches);
    for (size_t r = 0; r < rows.size(); ++r) {
      if (!rows[r].runs()) {
        continue;
      }
      if (observer.Cancelled()) {
        return CancelledStatus();
      }
      report->scores[r].push_back(r == 0 ? run.ScoreReference() : run.Score(rows[r]));
      done += static_cast<int64_t>(documents[d].ids.size());
      observer.Progress(done, total, fmt::format("{}: {}", documents[d].id, RowLabel(rows[r])));
    }
    report->documents.push_back(run.info());
    observer.Finished(documents[d].id, static_cast<int64_t>(d) + 1,
                      static_cast<int64_t>(documents.size()));
  }
  return OkStatus();
}

}  // namespace headroom::profiler
