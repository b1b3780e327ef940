#include "profiler/probes.h"

#include <algorithm>

#include "base/check.h"
#include "profiler/rung_sets.h"

namespace headroom::profiler {
namespace {

// Rows of a probe, and classes of slots on which their attention is measured.
struct RowQuestion {
  TokenSpan rows;
  std::vector<std::vector<TokenSpan>> classes;  // disjoint, at most kernels::kMaxClasses
};

// Attention of single rows on classes of slots, in kernels::kColumnUnit.
class RowMasses final : public ChunkObserver {
 public:
  RowMasses(const PromptReader& reader, std::vector<RowQuestion> questions)
      : backend_(reader.model().backend),
        scale_(reader.model().attention_scale),
        num_query_heads_(reader.num_query_heads()),
        questions_(std::move(questions)) {
    size_t size = 0;  // of a layer
    for (const RowQuestion& question : questions_) {
      begins_.push_back(size);
      size += static_cast<size_t>(question.rows.end - question.rows.begin) *
              static_cast<size_t>(num_query_heads_) * question.classes.size();
    }
    layer_size_ = size;
    masses_.resize(size * static_cast<size_t>(reader.num_layers()));
  }

  void Observe(const ChunkRows& rows) override {
    for (size_t i = 0; i < questions_.size(); ++i) {
      const int32_t begin = std::max(questions_[i].rows.begin, rows.row_begin);
      const int32_t end = std::min(questions_[i].rows.end, rows.row_begin + rows.num_rows);
      if (begin < end) {
        MeasureRows(rows, begin, end, i);
      }
    }
  }

  int64_t at(int32_t layer, size_t question, int32_t row, size_t query_head, size_t kind) const {
    return masses_[Index(layer, question, row) + query_head * questions_[question].classes.size() +
                   kind];
  }

 private:
  size_t Index(int32_t layer, size_t question, int32_t row) const {
    const RowQuestion& asked = questions_[question];
    return static_cast<size_t>(layer) * layer_size_ + begins_[question] +
           static_cast<size_t>(row - asked.rows.begin) * static_cast<size_t>(num_query_heads_) *
               asked.classes.size();
  }

  void MeasureRows(const ChunkRows& rows, int32_t begin, int32_t end, size_t question) {
    const RowQuestion& asked = questions_[question];
    const auto num_slots = static_cast<size_t>(rows.row_begin + rows.num_rows);
    classes_.assign(num_slots, kernels::kMaxClasses);
    for (size_t kind = 0; kind < asked.classes.size(); ++kind) {
      for (const TokenSpan& span : asked.classes[kind]) {
        for (int32_t slot = span.begin; slot < span.end; ++slot) {
          classes_[static_cast<size_t>(slot)] = static_cast<uint8_t>(kind);
        }
      }
    }
    const auto num_kv_heads = static_cast<size_t>(rows.arena.geometry.num_kv_heads);
    const std::vector<const uint8_t*> lists(num_kv_heads, classes_.data());
    std::vector<int32_t> visible;
    for (int32_t row = begin; row < end; ++row) {
      visible.insert(visible.end(), num_kv_heads, row + 1);
    }
    backend_.ClassMasses({.queries = rows.queries + (begin - rows.row_begin) * rows.stride,
                          .query_stride = rows.stride,
                          .num_rows = end - begin,
                          .visible = visible.data(),
                          .scale = scale_,
                          .arena = rows.arena,
                          .heads = rows.heads,
                          .num_classes = static_cast<int32_t>(asked.classes.size()),
                          .classes = lists,
                          .masses = masses_.data() + Index(rows.layer, question, begin)});
  }

  kernels::Backend& backend_;
  const float scale_;
  const int32_t num_query_heads_;
  const std::vector<RowQuestion> questions_;
  std::vector<size_t> begins_;  // of each question in a layer's masses
  size_t layer_size_ = 0;
  std::vector<int64_t> masses_;   // [layers][questions][rows, query heads, classes]
  std::vector<uint8_t> classes_;  // [slots]
};

ProbeRecord EmptyRecord(const PromptReader& reader, const ProbePrompt& prompt) {
  ProbeRecord record;
  record.kind = prompt.kind;
  const size_t size =
      static_cast<size_t>(reader.num_layers()) * static_cast<size_t>(reader.num_query_heads());
  record.copy_ppm.assign(size, 0);
  record.induction_ppm.assign(size, 0);
  return record;
}

// The score of one question for a query head.
int64_t NeedleScore(const RowMasses& masses, const ProbeQuestion& question, int32_t layer,
                    size_t query_head, size_t index) {
  int64_t into = 0;
  for (int32_t row = question.asking.begin; row < question.asking.end; ++row) {
    into = std::max(into, masses.at(layer, index, row, query_head, 0));
  }
  int64_t copied = 0;
  for (const ProbeCopy& copy : question.copies) {
    copied += masses.at(layer, ++index, copy.row, query_head, 0);
  }
  const auto num_copies = static_cast<int64_t>(question.copies.size());
  return std::max(into, num_copies == 0 ? 0 : copied / num_copies);
}

ProbeRecord MeasureNeedles(PromptReader& reader, const ProbePrompt& prompt) {
  std::vector<RowQuestion> asked;
  std::vector<size_t> begins;  // of each question in `asked`
  for (const ProbeQuestion& question : prompt.questions) {
    begins.push_back(asked.size());
    asked.push_back({question.asking, {question.needles}});
    for (const ProbeCopy& copy : question.copies) {
      asked.push_back({{copy.row, copy.row + 1}, {{{copy.source, copy.source + 1}}}});
    }
  }
  RowMasses masses(reader, asked);
  reader.Read(prompt.ids, masses);
  ProbeRecord record = EmptyRecord(reader, prompt);
  const auto num_heads = static_cast<size_t>(reader.num_query_heads());
  for (size_t i = 0; i < record.copy_ppm.size(); ++i) {
    int64_t score = 0;
    for (size_t q = 0; q < prompt.questions.size(); ++q) {
      score += NeedleScore(masses, prompt.questions[q], static_cast<int32_t>(i / num_heads),
                           i % num_heads, begins[q]);
    }
    record.copy_ppm[i] = MeanMassPpm(score, static_cast<int64_t>(prompt.questions.size()));
  }
  return record;
}

// Rows of the last copy that are looked at, spread evenly.
constexpr int32_t kInductionRows = 32;

ProbeRecord MeasureInduction(PromptReader& reader, const ProbePrompt& prompt) {
  const int32_t block = prompt.block_tokens;
  const auto num_tokens = static_cast<int32_t>(prompt.ids.size());
  const int32_t step = std::max(block / kInductionRows, 1);
  std::vector<RowQuestion> asked;
  for (int32_t row = num_tokens - block; row < num_tokens; row += step) {
    std::vector<TokenSpan> echo;
    std::vector<TokenSpan> induction;
    for (int32_t slot = row - block; slot >= prompt.block_begin; slot -= block) {
      echo.push_back({slot, slot + 1});
      induction.push_back({slot + 1, slot + 2});
    }
    asked.push_back({{row, row + 1}, {std::move(echo), std::move(induction)}});
  }
  RowMasses masses(reader, asked);
  reader.Read(prompt.ids, masses);
  ProbeRecord record = EmptyRecord(reader, prompt);
  const auto num_heads = static_cast<size_t>(reader.num_query_heads());
  for (size_t i = 0; i < record.copy_ppm.size(); ++i) {
    const auto layer = static_cast<int32_t>(i / num_heads);
    int64_t echo = 0;
    int64_t induction = 0;
    for (size_t q = 0; q < asked.size(); ++q) {
      echo += masses.at(layer, q, asked[q].rows.begin, i % num_heads, 0);
      induction += masses.at(layer, q, asked[q].rows.begin, i % num_heads, 1);
    }
    record.copy_ppm[i] = MeanMassPpm(echo, static_cast<int64_t>(asked.size()));
    record.induction_ppm[i] = MeanMassPpm(induction, static_cast<int64_t>(asked.size()));
  }
  return record;
}

}  // namespace

ProbeRecord MeasureProbe(PromptReader& reader, const ProbePrompt& prompt) {
  HEADROOM_CHECK(!prompt.ids.empty() && (prompt.block_tokens > 0) == prompt.questions.empty());
  return prompt.block_tokens > 0 ? MeasureInduction(reader, prompt)
                                 : MeasureNeedles(reader, prompt);
}

}  // namespace headroom::profiler
