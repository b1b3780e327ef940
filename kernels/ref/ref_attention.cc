#include "kernels/ref/ref_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "kernels/ref/ref_kv_page.h"

namespace headroom::kernels::ref {
namespace {

double Dot(const float* a, const float* b, int32_t n) {
  double sum = 0.0;
  for (int32_t i = 0; i < n; ++i) {
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  return sum;
}

// scale * q K^T over the first `count` slots.
void ScoreRow(const float* q, const float* k, int32_t head_dim, int32_t count, double scale,
              std::vector<double>* out) {
  out->resize(static_cast<size_t>(count));
  for (int32_t slot = 0; slot < count; ++slot) {
    (*out)[static_cast<size_t>(slot)] =
        scale * Dot(q, k + static_cast<int64_t>(slot) * head_dim, head_dim);
  }
}

// softmax(scale * q K^T) over the first `count` slots.
void SoftmaxRow(const float* q, const float* k, int32_t head_dim, int32_t count, double scale,
                std::vector<double>* out) {
  ScoreRow(q, k, head_dim, count, scale, out);
  double largest = -std::numeric_limits<double>::infinity();
  for (const double score : *out) {
    largest = std::max(largest, score);
  }
  double sum = 0.0;
  for (double& value : *out) {
    value = std::exp(value - largest);
    sum += value;
  }
  for (double& value : *out) {
    value /= sum;
  }
}

void RotateHead(float* head, const float* cos, const float* sin, int32_t head_dim,
                bool interleaved) {
  const int32_t half = head_dim / 2;
  for (int32_t pair = 0; pair < half; ++pair) {
    const int32_t first = interleaved ? 2 * pair : pair;
    const int32_t second = interleaved ? 2 * pair + 1 : pair + half;
    const double a = head[first];
    const double b = head[second];
    head[first] = static_cast<float>(a * cos[pair] - b * sin[pair]);
    head[second] = static_cast<float>(b * cos[pair] + a * sin[pair]);
  }
}

void AttendRows(const AttentionParams& params, const AttentionSegment& segment, int32_t kv_head) {
  const KvGeometry& geometry = params.arena.geometry;
  const int32_t head_dim = geometry.head_dim;
  int32_t longest = 0;
  for (int64_t row = segment.row_begin; row < segment.row_begin + segment.num_rows; ++row) {
    longest = std::max(longest, params.visible[row * geometry.num_kv_heads + kv_head]);
  }
  std::vector<float> k;
  std::vector<float> v;
  GatherHead(params.arena, segment.heads[kv_head], longest, &k, &v);
  std::vector<double> weights;
  std::vector<double> sums(static_cast<size_t>(head_dim));
  for (int64_t row = segment.row_begin; row < segment.row_begin + segment.num_rows; ++row) {
    const int32_t visible = params.visible[row * geometry.num_kv_heads + kv_head];
    HEADROOM_CHECK(visible >= 1);
    for (int32_t g = 0; g < geometry.group_size; ++g) {
      const int64_t head = static_cast<int64_t>(kv_head) * geometry.group_size + g;
      const float* q = params.q + row * params.q_stride + head * head_dim;
      SoftmaxRow(q, k.data(), head_dim, visible, params.scale, &weights);
      std::fill(sums.begin(), sums.end(), 0.0);
      for (int32_t slot = 0; slot < visible; ++slot) {
        const float* value = v.data() + static_cast<int64_t>(slot) * head_dim;
        for (int32_t dim = 0; dim < head_dim; ++dim) {
          sums[static_cast<size_t>(dim)] += weights[static_cast<size_t>(slot)] * value[dim];
        }
      }
      float* out = params.out + row * params.out_stride + head * head_dim;
      for (int32_t dim = 0; dim < head_dim; ++dim) {
        out[dim] = static_cast<float>(sums[static_cast<size_t>(dim)]);
      }
    }
  }
}

// The pooled value of `column`: max ignores what lies outside, avg counts it as zero.
double PoolAt(const std::vector<double>& scores, int32_t column, PoolKind kind, int32_t width) {
  const auto count = static_cast<int32_t>(scores.size());
  const int32_t begin = std::max(0, column - width / 2);
  const int32_t end = std::min(count, column + width / 2 + 1);
  double best = -std::numeric_limits<double>::infinity();
  double sum = 0.0;
  for (int32_t i = begin; i < end; ++i) {
    best = std::max(best, scores[static_cast<size_t>(i)]);
    sum += scores[static_cast<size_t>(i)];
  }
  return kind == PoolKind::kMax ? best : sum / width;
}

void ScoreHead(const WindowScoresParams& params, int32_t kv_head) {
  const KvGeometry& geometry = params.arena.geometry;
  const int32_t head_dim = geometry.head_dim;
  const auto num_columns = static_cast<size_t>(params.num_columns);
  std::vector<float> k;
  std::vector<float> v;
  GatherHead(params.arena, params.heads[kv_head], params.heads[kv_head].num_slots, &k, &v);
  std::vector<double> weights;
  std::vector<double> pooled_sum(num_columns, 0.0);
  std::vector<double> raw_sum(num_columns, 0.0);
  for (int32_t g = 0; g < geometry.group_size; ++g) {
    const int64_t head = static_cast<int64_t>(kv_head) * geometry.group_size + g;
    std::vector<double> column_sums(num_columns, 0.0);
    for (int32_t row = 0; row < params.num_window_rows; ++row) {
      const float* q = params.queries + row * params.query_stride + head * head_dim;
      const auto fill = params.kind == WindowScoreKind::kDot ? ScoreRow : SoftmaxRow;
      fill(q, k.data(), head_dim, params.visible[row], params.scale, &weights);
      for (size_t column = 0; column < std::min(num_columns, weights.size()); ++column) {
        column_sums[column] += weights[column];
      }
    }
    for (int32_t column = 0; column < params.num_columns; ++column) {
      const auto i = static_cast<size_t>(column);
      pooled_sum[i] += PoolAt(column_sums, column, params.pool, params.pool_width);
      raw_sum[i] += column_sums[i];
    }
  }
  for (size_t column = 0; column < num_columns; ++column) {
    const size_t i = static_cast<size_t>(kv_head) * num_columns + column;
    params.pooled[i] = static_cast<float>(pooled_sum[column]);
    params.raw[i] = static_cast<float>(raw_sum[column]);
  }
}

// Whether index a is chosen before index b.
bool Before(const SelectTopKParams& params, int32_t a, int32_t b) {
  const float score_a = params.scores[a];
  const float score_b = params.scores[b];
  if (std::isnan(score_a) || std::isnan(score_b)) {
    if (std::isnan(score_a) != std::isnan(score_b)) {
      return std::isnan(score_b);
    }
    return a < b;
  }
  if (score_a != score_b) {
    return score_a > score_b;
  }
  if (params.tie_break != nullptr && params.tie_break[a] != params.tie_break[b]) {
    return params.tie_break[a] > params.tie_break[b];
  }
  return a < b;
}

}  // namespace

void RopeStore(const RopeStoreParams& params) {
  const KvGeometry& geometry = params.arena.geometry;
  const int32_t head_dim = geometry.head_dim;
  const int64_t num_heads = static_cast<int64_t>(geometry.num_kv_heads) * geometry.group_size;
  for (int64_t row = 0; row < params.num_rows; ++row) {
    float* qkv = params.qkv + row * params.qkv_stride;
    const float* cos = params.cos + row * (head_dim / 2);
    const float* sin = params.sin + row * (head_dim / 2);
    for (int64_t head = 0; head < num_heads + geometry.num_kv_heads; ++head) {
      RotateHead(qkv + head * head_dim, cos, sin, head_dim, params.interleaved);
    }
    for (int32_t kv_head = 0; kv_head < geometry.num_kv_heads; ++kv_head) {
      const int64_t slot = params.dst_slots[row * geometry.num_kv_heads + kv_head];
      if (slot >= 0) {
        const float* k = qkv + (num_heads + kv_head) * head_dim;
        const float* v = k + static_cast<int64_t>(geometry.num_kv_heads) * head_dim;
        StoreSlot(params.arena, slot, k, v);
      }
    }
  }
}

void Attention(const AttentionParams& params, ThreadPool& pool) {
  const int64_t num_kv_heads = params.arena.geometry.num_kv_heads;
  pool.ParallelFor(static_cast<int64_t>(params.segments.size()) * num_kv_heads,
                   [&](int64_t item, int) {
                     AttendRows(params, params.segments[static_cast<size_t>(item / num_kv_heads)],
                                static_cast<int32_t>(item % num_kv_heads));
                   });
}

void WindowScores(const WindowScoresParams& params, ThreadPool& pool) {
  pool.ParallelFor(params.arena.geometry.num_kv_heads, [&](int64_t kv_head, int) {
    ScoreHead(params, static_cast<int32_t>(kv_head));
  });
}

void SelectTopK(const SelectTopKParams& params) {
  std::vector<int32_t> order;
  for (int32_t i = 0; i < params.num_scores; ++i) {
    if (params.skip == nullptr || params.skip[i] == 0) {
      order.push_back(i);
    }
  }
  HEADROOM_CHECK(params.k >= 0 && params.k <= static_cast<int32_t>(order.size()));
  std::sort(order.begin(), order.end(),
            [&](int32_t a, int32_t b) { return Before(params, a, b); });
  order.resize(static_cast<size_t>(params.k));
  std::sort(order.begin(), order.end());
  std::copy(order.begin(), order.end(), params.out);
}

}  // namespace headroom::kernels::ref
