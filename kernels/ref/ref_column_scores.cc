#include "kernels/ref/ref_column_scores.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/check.h"
#include "kernels/ref/ref_kv_page.h"

namespace headroom::kernels::ref {
namespace {

// exp(score - max) of each slot; returns their sum.
double ExpScores(const float* q, const std::vector<float>& k, int32_t head_dim, double scale,
                 std::vector<double>* exps) {
  double largest = -std::numeric_limits<double>::infinity();
  for (size_t slot = 0; slot < exps->size(); ++slot) {
    double dot = 0.0;
    for (int32_t dim = 0; dim < head_dim; ++dim) {
      dot +=
          static_cast<double>(q[dim]) *
          static_cast<double>(k[slot * static_cast<size_t>(head_dim) + static_cast<size_t>(dim)]);
    }
    (*exps)[slot] = scale * dot;
    largest = std::max(largest, (*exps)[slot]);
  }
  double sum = 0.0;
  for (double& value : *exps) {
    value = std::exp(value - largest);
    sum += value;
  }
  return sum;
}

int64_t Addend(ColumnKind kind, double exp, double sum, int32_t visible) {
  if (kind == ColumnKind::kAboveMean) {
    return exp * visible >= sum ? 1 : 0;
  }
  const double scaled = exp / sum * static_cast<double>(kColumnUnit);
  return std::isfinite(scaled) ? std::llrint(scaled) : 0;
}

void AddHead(const ColumnScoresParams& params, int32_t kv_head) {
  const KvGeometry& geometry = params.arena.geometry;
  std::vector<float> k;
  std::vector<float> v;
  GatherHead(params.arena, params.heads[kv_head], params.heads[kv_head].num_slots, &k, &v);
  std::vector<double> exps;
  for (int32_t row = 0; row < params.num_rows; ++row) {
    const int32_t visible = params.visible[int64_t{row} * geometry.num_kv_heads + kv_head];
    HEADROOM_CHECK(visible >= 0 && visible <= params.heads[kv_head].num_slots);
    const int32_t near_begin = std::max(visible - params.near_slots, 0);
    exps.resize(static_cast<size_t>(visible));
    for (int32_t g = 0; g < geometry.group_size; ++g) {
      const int64_t head = int64_t{kv_head} * geometry.group_size + g;
      const auto target = static_cast<size_t>(params.per_query_head ? head : kv_head);
      if (params.sums[target] == nullptr) {
        continue;
      }
      const float* q = params.queries + row * params.query_stride + head * geometry.head_dim;
      const double sum = ExpScores(q, k, geometry.head_dim, params.scale, &exps);
      for (int32_t slot = 0; slot < visible; ++slot) {
        const int64_t addend = Addend(params.kind, exps[static_cast<size_t>(slot)], sum, visible);
        params.sums[target][slot] += addend;
        if (!params.near_sums.empty() && slot >= near_begin) {
          params.near_sums[target][slot] += addend;
        }
      }
    }
  }
}

}  // namespace

void ColumnScores(const ColumnScoresParams& params, ThreadPool& pool) {
  const KvGeometry& geometry = params.arena.geometry;
  const int64_t num_sums = params.per_query_head
                               ? int64_t{geometry.num_kv_heads} * geometry.group_size
                               : int64_t{geometry.num_kv_heads};
  HEADROOM_CHECK(static_cast<int64_t>(params.sums.size()) == num_sums);
  HEADROOM_CHECK(params.near_sums.empty() || params.near_sums.size() == params.sums.size());
  HEADROOM_CHECK(params.near_slots >= 0);
  pool.ParallelFor(geometry.num_kv_heads,
                   [&](int64_t kv_head, int) { AddHead(params, static_cast<int32_t>(kv_head)); });
}

}  // namespace headroom::kernels::ref
