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

int64_t BucketOf(std::span<const int32_t> edges, int32_t distance) {
  return std::count_if(edges.begin(), edges.end(),
                       [distance](int32_t edge) { return edge <= distance; });
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
        const int64_t bucket = BucketOf(params.bucket_edges, visible - 1 - slot);
        params.sums[target][bucket * params.bucket_stride + slot] += addend;
        if (!params.near_sums.empty() && slot >= near_begin) {
          params.near_sums[target][slot] += addend;
        }
      }
    }
  }
}

void ClassMassesOfHead(const ClassMassesParams& params, int32_t kv_head) {
  const KvGeometry& geometry = params.arena.geometry;
  const int32_t num_query_heads = geometry.num_kv_heads * geometry.group_size;
  const bool per_query_head = static_cast<int32_t>(params.classes.size()) == num_query_heads;
  std::vector<float> k;
  std::vector<float> v;
  GatherHead(params.arena, params.heads[kv_head], params.heads[kv_head].num_slots, &k, &v);
  std::vector<double> exps;
  for (int32_t row = 0; row < params.num_rows; ++row) {
    exps.resize(
        static_cast<size_t>(params.visible[int64_t{row} * geometry.num_kv_heads + kv_head]));
    for (int32_t g = 0; g < geometry.group_size; ++g) {
      const int32_t head = kv_head * geometry.group_size + g;
      const float* q = params.queries + row * params.query_stride + head * geometry.head_dim;
      const double sum = ExpScores(q, k, geometry.head_dim, params.scale, &exps);
      const uint8_t* classes = params.classes[static_cast<size_t>(per_query_head ? head : kv_head)];
      double masses[kMaxClasses] = {};
      for (size_t slot = 0; slot < exps.size(); ++slot) {
        if (classes[slot] < params.num_classes) {
          masses[classes[slot]] += exps[slot] / sum;
        }
      }
      for (int32_t c = 0; c < params.num_classes; ++c) {
        const double scaled = masses[c] * static_cast<double>(kColumnUnit);
        params.masses[(int64_t{row} * num_query_heads + head) * params.num_classes + c] =
            std::isfinite(sum) && std::isfinite(scaled) ? std::llrint(scaled) : 0;
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
  HEADROOM_CHECK(params.bucket_edges.empty() ||
                 (params.near_sums.empty() && params.kind == ColumnKind::kProbability));
  pool.ParallelFor(geometry.num_kv_heads,
                   [&](int64_t kv_head, int) { AddHead(params, static_cast<int32_t>(kv_head)); });
}

void ClassMasses(const ClassMassesParams& params, ThreadPool& pool) {
  const KvGeometry& geometry = params.arena.geometry;
  const auto num_kv_heads = static_cast<size_t>(geometry.num_kv_heads);
  HEADROOM_CHECK(params.num_classes >= 1 && params.num_classes <= kMaxClasses);
  HEADROOM_CHECK(params.classes.size() == num_kv_heads ||
                 params.classes.size() == num_kv_heads * static_cast<size_t>(geometry.group_size));
  pool.ParallelFor(geometry.num_kv_heads, [&](int64_t kv_head, int) {
    ClassMassesOfHead(params, static_cast<int32_t>(kv_head));
  });
}

}  // namespace headroom::kernels::ref
