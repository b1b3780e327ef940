#include "profiler/probes.h"

#include <algorithm>

#include "base/check.h"

namespace headroom::profiler {
namespace {

constexpr int64_t kMillion = 1'000'000;

// A mean of `count` probabilities, in ppm.
int32_t MeanPpm(int64_t sum, int64_t count) {
  const int64_t mean = count == 0 ? 0 : sum / count;
  return static_cast<int32_t>(std::clamp<int64_t>(
      (mean * kMillion + kernels::kColumnUnit / 2) / kernels::kColumnUnit, 0, kMillion));
}

// What one row of a probe is asked: how much of its attention falls on some slots.
struct RowQuestion {
  int32_t row = 0;
  std::vector<TokenSpan> slots;
};

// Probabilities of single rows, as integers in units of 2^-40.
class RowMasses final : public ChunkObserver {
 public:
  // Rows ascending.
  RowMasses(const PromptReader& reader, std::vector<RowQuestion> questions)
      : backend_(reader.model().backend),
        scale_(reader.model().attention_scale),
        num_query_heads_(reader.num_query_heads()),
        questions_(std::move(questions)),
        masses_(static_cast<size_t>(reader.num_layers()) * questions_.size() *
                static_cast<size_t>(num_query_heads_)) {}

  void Observe(const ChunkRows& rows) override {
    for (size_t i = 0; i < questions_.size(); ++i) {
      const int32_t row = questions_[i].row - rows.row_begin;
      if (row >= 0 && row < rows.num_rows) {
        AddRow(rows, row, i);
      }
    }
  }

  // Of all the slots asked for, [num_query_heads].
  const int64_t* at(int32_t layer, size_t question) const {
    return masses_.data() + (static_cast<size_t>(layer) * questions_.size() + question) *
                                static_cast<size_t>(num_query_heads_);
  }

 private:
  void AddRow(const ChunkRows& rows, int32_t row, size_t index) {
    const auto num_slots = static_cast<size_t>(rows.row_begin + rows.num_rows);
    sums_.assign(static_cast<size_t>(num_query_heads_) * num_slots, 0);
    std::vector<int64_t*> targets;
    for (int32_t head = 0; head < num_query_heads_; ++head) {
      targets.push_back(sums_.data() + static_cast<size_t>(head) * num_slots);
    }
    const std::vector<int32_t> visible(static_cast<size_t>(rows.arena.geometry.num_kv_heads),
                                       rows.row_begin + row + 1);
    backend_.ColumnScores({.queries = rows.queries + row * rows.stride,
                           .query_stride = rows.stride,
                           .num_rows = 1,
                           .visible = visible.data(),
                           .scale = scale_,
                           .arena = rows.arena,
                           .heads = rows.heads,
                           .per_query_head = true,
                           .sums = targets});
    int64_t* masses = const_cast<int64_t*>(at(rows.layer, index));
    for (int32_t head = 0; head < num_query_heads_; ++head) {
      for (const TokenSpan& span : questions_[index].slots) {
        for (int32_t slot = span.begin; slot < span.end; ++slot) {
          masses[head] += targets[static_cast<size_t>(head)][slot];
        }
      }
    }
  }

  kernels::Backend& backend_;
  const float scale_;
  const int32_t num_query_heads_;
  const std::vector<RowQuestion> questions_;
  std::vector<int64_t> masses_;  // [layers, questions, query heads]
  std::vector<int64_t> sums_;    // [query heads, slots]
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

ProbeRecord MeasureNeedles(PromptReader& reader, const ProbePrompt& prompt) {
  std::vector<RowQuestion> asked;
  for (const ProbeQuestion& question : prompt.questions) {
    for (int32_t row = question.asking.begin; row < question.asking.end; ++row) {
      asked.push_back({row, question.needles});
    }
    for (const ProbeCopy& copy : question.copies) {
      asked.push_back({copy.row, {{copy.source, copy.source + 1}}});
    }
  }
  RowMasses masses(reader, asked);
  reader.Read(prompt.ids, masses);
  ProbeRecord record = EmptyRecord(reader, prompt);
  const auto num_heads = static_cast<size_t>(reader.num_query_heads());
  for (size_t i = 0; i < record.copy_ppm.size(); ++i) {
    const auto layer = static_cast<int32_t>(i / num_heads);
    size_t index = 0;
    int64_t score = 0;
    for (const ProbeQuestion& question : prompt.questions) {
      int64_t into = 0;
      for (int32_t row = question.asking.begin; row < question.asking.end; ++row) {
        into = std::max(into, masses.at(layer, index++)[i % num_heads]);
      }
      int64_t copied = 0;
      for (size_t copy = 0; copy < question.copies.size(); ++copy) {
        copied += masses.at(layer, index++)[i % num_heads];
      }
      const auto num_copies = static_cast<int64_t>(question.copies.size());
      score += std::max(into, num_copies == 0 ? 0 : copied / num_copies);
    }
    record.copy_ppm[i] = MeanPpm(score, static_cast<int64_t>(prompt.questions.size()));
  }
  return record;
}

// Rows of the last copy that are looked at, spread evenly.
constexpr int32_t kInductionRows = 32;

ProbeRecord MeasureInduction(PromptReader& reader, const ProbePrompt& prompt) {
  const int32_t block = prompt.block_tokens;
  const auto num_tokens = static_cast<int32_t>(prompt.ids.size());
  const int32_t step = std::max(block / kInductionRows, 1);
  std::vector<RowQuestion> asked;  // echo and induction of each row
  for (int32_t row = num_tokens - block; row < num_tokens; row += step) {
    RowQuestion echo = {row, {}};
    RowQuestion induction = {row, {}};
    for (int32_t slot = row - block; slot >= prompt.block_begin; slot -= block) {
      echo.slots.push_back({slot, slot + 1});
      induction.slots.push_back({slot + 1, slot + 2});
    }
    asked.push_back(std::move(echo));
    asked.push_back(std::move(induction));
  }
  RowMasses masses(reader, asked);
  reader.Read(prompt.ids, masses);
  ProbeRecord record = EmptyRecord(reader, prompt);
  const auto num_heads = static_cast<size_t>(reader.num_query_heads());
  for (size_t i = 0; i < record.copy_ppm.size(); ++i) {
    const auto layer = static_cast<int32_t>(i / num_heads);
    int64_t echo = 0;
    int64_t induction = 0;
    for (size_t row = 0; row < asked.size(); row += 2) {
      echo += masses.at(layer, row)[i % num_heads];
      induction += masses.at(layer, row + 1)[i % num_heads];
    }
    record.copy_ppm[i] = MeanPpm(echo, static_cast<int64_t>(asked.size() / 2));
    record.induction_ppm[i] = MeanPpm(induction, static_cast<int64_t>(asked.size() / 2));
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
