#include "profiler/statistics_pass.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "profiler/late_rows.h"
#include "profiler/layer_overlap.h"
#include "profiler/paper_statistic.h"
#include "profiler/rung_sets.h"
#include "profiler/value_error.h"

namespace headroom::profiler {
namespace {

using kernels::KvHeadView;

constexpr int64_t kMillion = 1'000'000;

std::vector<SlotKind> KindsOf(const EvalModel& model, const PromptTokens& prompt,
                              int32_t sink_tokens) {
  const engine::TokenClasses classes = engine::ClassifyPrompt(model.token_classes, prompt.ids);
  std::vector<SlotKind> kinds(prompt.ids.size(), SlotKind::kOther);
  for (size_t i = 0; i < kinds.size(); ++i) {
    if (i < static_cast<size_t>(sink_tokens)) {
      kinds[i] = SlotKind::kSink;
    } else if (classes != nullptr && (*classes)[i] == engine::TokenClass::kSpecial) {
      kinds[i] = SlotKind::kSpecial;
    } else if (classes != nullptr && (*classes)[i] == engine::TokenClass::kPunctuation) {
      kinds[i] = SlotKind::kPunctuation;
    }
  }
  return kinds;
}

// Pointers to tables that lie one behind the other.
std::vector<int64_t*> TablePointers(std::vector<int64_t>& tables, size_t size) {
  std::vector<int64_t*> pointers;
  for (size_t begin = 0; begin < tables.size(); begin += size) {
    pointers.push_back(tables.data() + begin);
  }
  return pointers;
}

}  // namespace

// One prompt.
class StatisticsPass::Impl final : public ChunkObserver {
 public:
  Impl(PromptReader& reader, const StatisticsOptions& options, float* kept_queries,
       const PromptTokens& prompt)
      : reader_(reader),
        options_(options),
        backend_(reader.model().backend),
        kept_queries_(kept_queries),
        rows_(SplitRows(static_cast<int32_t>(prompt.ids.size()))),
        num_tokens_(static_cast<int32_t>(prompt.ids.size())),
        num_heads_(static_cast<size_t>(reader.num_query_heads())),
        sets_(options.ladder, KindsOf(reader.model(), prompt, options.sink_tokens),
              options.recent_tokens, rows_.eval_begin) {
    const size_t num_layers = static_cast<size_t>(reader_.num_layers());
    const size_t num_kv_heads = static_cast<size_t>(reader_.num_kv_heads());
    record_.num_tokens = num_tokens_;
    for (const SlotKind kind : sets_.kinds()) {
      record_.num_special += kind <= SlotKind::kSpecial ? 1 : 0;
      record_.num_punctuation += kind == SlotKind::kPunctuation ? 1 : 0;
    }
    record_.mass_ppm.resize(num_layers * num_heads_ * sets_.num_rungs());
    record_.class_mass_ppm.resize(num_layers * num_heads_);
    if (options_.num_value_rows > 0) {
      record_.value_error_ppm.resize(num_layers * num_kv_heads * sets_.num_rungs());
    }
    num_late_ = std::min(options_.num_late_rows, num_tokens_ - rows_.eval_begin);
    if (num_late_ > 0) {
      late_.emplace(sets_, reader.num_kv_heads(), reader.group_size());
      record_.late_p10_ppm.resize(num_layers * num_kv_heads * sets_.num_rungs());
    }
    if (options_.paper_ladder.has_value()) {
      paper_.emplace(reader, *options_.paper_ladder, sets_.kinds());
    }
    columns_.resize(num_kv_heads * static_cast<size_t>(num_tokens_));
    tables_.resize(num_heads_ * sets_.table_size());
    const engine::PromptInfo info = {
        .num_tokens = num_tokens_, .content_end = prompt.content_end, .classes = nullptr};
    engine::KvPolicySpec window;
    window.window = options_.window;
    window_rows_ = std::min(engine::WindowRows(window, info), num_tokens_ - rows_.select_begin);
    num_top_ = static_cast<int32_t>(options_.top_ppm * num_tokens_ / kMillion) - window_rows_;
  }

  void Observe(const ChunkRows& rows) override {
    if (paper_.has_value()) {
      paper_->Observe(rows);
    }
    KeepQueries(rows);
    if (rows.is_last) {
      FinishLayer(rows);
    }
  }

  PromptRecord Finish() {
    record_.overlap_ppm = top_.Overlap();
    if (paper_.has_value()) {
      record_.paper_mass_ppm = paper_->Finish();
    }
    return std::move(record_);
  }

  size_t table_bytes() const {
    return sizeof(int64_t) * (columns_.size() + tables_.size() + row_sums_.size()) +
           sizeof(float) * (values_.size() + 2 * scores_.size()) + top_.num_bytes() +
           (late_.has_value() ? late_->num_bytes() : 0) +
           (paper_.has_value() ? paper_->num_bytes() : 0);
  }

 private:
  int64_t query_width() const {
    return static_cast<int64_t>(num_heads_) * reader_.model().model.config().head_dim;
  }
  int32_t num_kept() const { return num_tokens_ - rows_.select_begin; }
  float* LayerQueries(int32_t layer) const {
    return kept_queries_ + int64_t{layer} * num_kept() * query_width();
  }

  void KeepQueries(const ChunkRows& rows) {
    std::vector<int64_t> from;
    std::vector<int64_t> to;
    for (int32_t i = std::max(rows_.select_begin - rows.row_begin, 0); i < rows.num_rows; ++i) {
      from.push_back(i);
      to.push_back(rows.row_begin + i - rows_.select_begin);
    }
    backend_.CopyRows({.src = rows.queries,
                       .src_stride = rows.stride,
                       .dst = LayerQueries(rows.layer),
                       .dst_stride = query_width(),
                       .width = query_width(),
                       .src_rows = from,
                       .dst_rows = to});
  }

  // Column sums of kept rows [begin, end) of the prompt.
  kernels::ColumnScoresParams KeptRows(const ChunkRows& rows, int32_t begin, int32_t end,
                                       const std::vector<int32_t>& visible) const {
    return {.queries = LayerQueries(rows.layer) + (begin - rows_.select_begin) * query_width(),
            .query_stride = query_width(),
            .num_rows = end - begin,
            .visible = visible.data(),
            .scale = reader_.model().attention_scale,
            .arena = rows.arena,
            .heads = rows.heads};
  }

  void FinishLayer(const ChunkRows& rows) {
    std::fill(columns_.begin(), columns_.end(), 0);
    std::fill(tables_.begin(), tables_.end(), 0);
    SumRows(rows);
    const int32_t group = reader_.group_size();
    const int64_t num_eval = num_tokens_ - rows_.eval_begin;
    const std::vector<int32_t> value_rows = ValueRows(rows);
    for (int32_t kv_head = 0; kv_head < reader_.num_kv_heads(); ++kv_head) {
      sets_.RankColumns(
          {columns_.data() + int64_t{kv_head} * num_tokens_, static_cast<size_t>(num_tokens_)});
      for (int32_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        const std::span<int64_t> table = {
            tables_.data() + static_cast<size_t>(head) * sets_.table_size(), sets_.table_size()};
        const size_t at = static_cast<size_t>(rows.layer) * num_heads_ + static_cast<size_t>(head);
        sets_.Accumulate(table);
        sets_.Masses(table, num_eval, record_.mass_ppm.data() + at * sets_.num_rungs());
        record_.class_mass_ppm[at] = sets_.ClassMasses(table, num_eval);
      }
      MeasureValues(rows, kv_head, value_rows);
      if (late_.has_value()) {
        late_->SetHead(kv_head);
      }
    }
    MeasureLateRows(rows);
    ChooseTop(rows);
  }

  void SumRows(const ChunkRows& rows) {
    const int32_t num_kv_heads = reader_.num_kv_heads();
    const std::vector<int32_t> select_visible =
        CausalVisible(rows_.select_begin, rows_.eval_begin - rows_.select_begin, num_kv_heads);
    kernels::ColumnScoresParams select =
        KeptRows(rows, rows_.select_begin, rows_.eval_begin, select_visible);
    const std::vector<int64_t*> columns = TablePointers(columns_, static_cast<size_t>(num_tokens_));
    select.sums = columns;
    backend_.ColumnScores(select);
    const std::vector<int32_t> eval_visible =
        CausalVisible(rows_.eval_begin, num_tokens_ - rows_.eval_begin, num_kv_heads);
    kernels::ColumnScoresParams eval = KeptRows(rows, rows_.eval_begin, num_tokens_, eval_visible);
    const std::vector<int64_t*> tables = TablePointers(tables_, sets_.table_size());
    eval.per_query_head = true;
    eval.bucket_edges = sets_.edges();
    eval.bucket_stride = num_tokens_;
    eval.sums = tables;
    backend_.ColumnScores(eval);
  }

  // Probabilities of one kept row, added to `sums`: [query heads, num_tokens].
  void AddProbabilities(const ChunkRows& rows, int32_t row, int64_t* sums) {
    const std::vector<int32_t> visible = CausalVisible(row, 1, reader_.num_kv_heads());
    std::vector<int64_t*> of_heads;
    for (size_t head = 0; head < num_heads_; ++head) {
      of_heads.push_back(sums + head * static_cast<size_t>(num_tokens_));
    }
    kernels::ColumnScoresParams params = KeptRows(rows, row, row + 1, visible);
    params.per_query_head = true;
    params.sums = of_heads;
    backend_.ColumnScores(params);
  }

  // Eval rows whose value error is measured, spread evenly, and their probabilities in row_sums_:
  // [rows, query heads, num_tokens].
  std::vector<int32_t> ValueRows(const ChunkRows& rows) {
    const int32_t num_eval = num_tokens_ - rows_.eval_begin;
    const int32_t count = std::min(options_.num_value_rows, num_eval);
    std::vector<int32_t> chosen;
    const size_t size = num_heads_ * static_cast<size_t>(num_tokens_);
    row_sums_.assign(static_cast<size_t>(count) * size, 0);
    for (int32_t i = 0; i < count; ++i) {
      const int32_t row = rows_.eval_begin + (2 * i + 1) * num_eval / (2 * count);
      AddProbabilities(rows, row, row_sums_.data() + static_cast<size_t>(i) * size);
      chosen.push_back(row);
    }
    return chosen;
  }

  void MeasureValues(const ChunkRows& rows, int32_t kv_head,
                     const std::vector<int32_t>& value_rows) {
    if (value_rows.empty()) {
      return;
    }
    const int32_t head_dim = rows.arena.geometry.head_dim;
    std::vector<float> key(static_cast<size_t>(head_dim));
    values_.resize(static_cast<size_t>(num_tokens_) * static_cast<size_t>(head_dim));
    const KvHeadView& view = rows.heads[kv_head];
    for (int32_t slot = 0; slot < num_tokens_; ++slot) {
      const int64_t page = view.pages[slot / kernels::kPageSize];
      backend_.ReadKvSlot(rows.arena, page * kernels::kPageSize + slot % kernels::kPageSize,
                          key.data(), values_.data() + int64_t{slot} * head_dim);
    }
    ValueErrors errors(sets_, values_, head_dim, reader_.group_size());
    const int64_t per_row = static_cast<int64_t>(num_heads_) * num_tokens_;
    for (size_t i = 0; i < value_rows.size(); ++i) {
      errors.AddRow(value_rows[i],
                    row_sums_.data() + static_cast<int64_t>(i) * per_row +
                        int64_t{kv_head} * reader_.group_size() * num_tokens_,
                    num_tokens_);
    }
    const size_t at =
        static_cast<size_t>(rows.layer) * static_cast<size_t>(reader_.num_kv_heads()) +
        static_cast<size_t>(kv_head);
    errors.Write(record_.value_error_ppm.data() + at * sets_.num_rungs());
  }

  void MeasureLateRows(const ChunkRows& rows) {
    if (!late_.has_value()) {
      return;
    }
    for (int32_t row = num_tokens_ - num_late_; row < num_tokens_; ++row) {
      row_sums_.assign(num_heads_ * static_cast<size_t>(num_tokens_), 0);
      AddProbabilities(rows, row, row_sums_.data());
      late_->AddRow(row_sums_, row + 1);
    }
    const size_t at = static_cast<size_t>(rows.layer) * static_cast<size_t>(reader_.num_kv_heads());
    late_->Finish(record_.late_p10_ppm.data() + at * sets_.num_rungs());
  }

  // The layer's top tokens by window scores summed over its KV heads, as TSP would choose them.
  void ChooseTop(const ChunkRows& rows) {
    const int32_t num_columns = num_tokens_ - window_rows_;
    if (num_top_ < 1 || num_top_ > num_columns) {
      return;
    }
    std::vector<int32_t> visible(static_cast<size_t>(window_rows_));
    std::iota(visible.begin(), visible.end(), num_columns + 1);
    const auto width = static_cast<size_t>(num_columns);
    scores_.resize(static_cast<size_t>(reader_.num_kv_heads()) * width);
    raw_.resize(scores_.size());
    backend_.WindowScores(
        {.queries = LayerQueries(rows.layer) + (num_columns - rows_.select_begin) * query_width(),
         .query_stride = query_width(),
         .num_window_rows = window_rows_,
         .visible = visible.data(),
         .scale = reader_.model().attention_scale,
         .arena = rows.arena,
         .heads = rows.heads,
         .num_columns = num_columns,
         .pooled = scores_.data(),
         .raw = raw_.data()});
    top_.Add(backend_, scores_, raw_, num_columns, num_top_);
  }

  PromptReader& reader_;
  const StatisticsOptions& options_;
  kernels::Backend& backend_;
  float* const kept_queries_;
  const RowSets rows_;
  const int32_t num_tokens_;
  const size_t num_heads_;  // query heads of a layer
  RungSets sets_;
  std::optional<PaperStatistic> paper_;
  std::optional<LateRows> late_;
  int32_t num_late_ = 0;
  int32_t window_rows_ = 0;
  int32_t num_top_ = 0;  // top tokens outside the window
  PromptRecord record_;
  // Of one layer at a time.
  std::vector<int64_t> columns_;  // [KV heads, num_tokens], select rows
  std::vector<int64_t> tables_;   // [query heads, buckets, num_tokens], eval rows
  std::vector<int64_t> row_sums_;
  std::vector<float> values_;  // [num_tokens, head_dim] of one KV head
  std::vector<float> scores_;  // [KV heads, columns]
  std::vector<float> raw_;
  LayerOverlap top_;
};

StatisticsPass::StatisticsPass(PromptReader& reader, const StatisticsOptions& options,
                               float* kept_queries, const PromptTokens& prompt)
    : impl_(std::make_unique<Impl>(reader, options, kept_queries, prompt)) {}
StatisticsPass::~StatisticsPass() = default;

void StatisticsPass::Observe(const ChunkRows& rows) { impl_->Observe(rows); }
PromptRecord StatisticsPass::Finish() { return impl_->Finish(); }
size_t StatisticsPass::num_bytes() const { return impl_->table_bytes(); }

}  // namespace headroom::profiler
