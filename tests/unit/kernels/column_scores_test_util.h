// Calls of ColumnScores and their definition in doubles.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/ops.h"

namespace headroom::kernels {

// What is asked of one cache.
struct ColumnCase {
  ColumnKind kind = ColumnKind::kProbability;
  bool per_query_head = false;
  int32_t near_slots = 0;
  bool has_near = false;
};

struct ColumnSums {
  std::vector<std::vector<int64_t>> sums;  // [sums' heads][num_slots]
  std::vector<std::vector<int64_t>> near_sums;
  bool operator==(const ColumnSums&) const = default;
};

struct ColumnOracle {
  std::vector<std::vector<double>> sums;  // unrounded
  std::vector<std::vector<double>> near_sums;
  // Addends that a comparison within 1e-4 of equality may have decided otherwise (above mean), or
  // all of them (probability).
  std::vector<std::vector<int32_t>> num_unsure;
};

inline constexpr float kTestScale = 0.2f;

inline int32_t NumSums(const KvGeometry& g, const ColumnCase& c) {
  return c.per_query_head ? g.num_kv_heads * g.group_size : g.num_kv_heads;
}

// Zeroed sums of every head.
inline ColumnSums ZeroSums(const KvGeometry& g, const std::vector<KvHeadView>& heads,
                           const ColumnCase& c) {
  ColumnSums sums;
  const int32_t num_sums = NumSums(g, c);
  for (int32_t h = 0; h < num_sums; ++h) {
    const auto n = static_cast<size_t>(heads[static_cast<size_t>(
        h * g.num_kv_heads / num_sums)].num_slots);
    sums.sums.emplace_back(n, 0);
    if (c.has_near) {
      sums.near_sums.emplace_back(n, 0);
    }
  }
  return sums;
}

// Rows [first_row, first_row + num_rows) of queries [all rows, width], added to `sums`.
inline void RunColumns(const std::function<void(const ColumnScoresParams&)>& op,
                       const KvArena& arena, const std::vector<KvHeadView>& heads,
                       const std::vector<float>& queries, const std::vector<int32_t>& visible,
                       const ColumnCase& c, int32_t first_row, int32_t num_rows,
                       ColumnSums* sums) {
  const KvGeometry& g = arena.geometry;
  const int64_t width = int64_t{g.num_kv_heads} * g.group_size * g.head_dim;
  std::vector<int64_t*> pointers;
  std::vector<int64_t*> near_pointers;
  for (auto& head : sums->sums) {
    pointers.push_back(head.data());
  }
  for (auto& head : sums->near_sums) {
    near_pointers.push_back(head.data());
  }
  op({.queries = queries.data() + first_row * width, .query_stride = width, .num_rows = num_rows,
      .visible = visible.data() + int64_t{first_row} * g.num_kv_heads, .scale = kTestScale,
      .arena = arena, .heads = heads.data(), .kind = c.kind, .per_query_head = c.per_query_head,
      .near_slots = c.near_slots, .sums = pointers, .near_sums = near_pointers});
}

// exp(score - max) of one row and query head over k [num_slots, head_dim].
inline std::vector<double> ExpScores(const float* q, const std::vector<double>& k, size_t dim,
                                     size_t visible) {
  std::vector<double> e(visible);
  for (size_t slot = 0; slot < visible; ++slot) {
    for (size_t d = 0; d < dim; ++d) {
      e[slot] += double{q[d]} * double{kTestScale} * k[slot * dim + d];
    }
  }
  const double max = visible == 0 ? 0.0 : *std::max_element(e.begin(), e.end());
  for (double& x : e) {
    x = std::exp(x - max);
  }
  return e;
}

// k: [num_kv_heads][num_slots, head_dim], what the slots hold.
inline ColumnOracle ComputeColumnOracle(const KvGeometry& g,
                                        const std::vector<std::vector<double>>& k,
                                        const std::vector<float>& queries,
                                        const std::vector<int32_t>& visible, const ColumnCase& c) {
  const auto dim = static_cast<size_t>(g.head_dim);
  const auto num_kv_heads = static_cast<size_t>(g.num_kv_heads);
  const auto group = static_cast<size_t>(g.group_size);
  ColumnOracle oracle;
  for (size_t h = 0; h < static_cast<size_t>(NumSums(g, c)); ++h) {
    const size_t n = k[c.per_query_head ? h / group : h].size() / dim;
    oracle.sums.emplace_back(n);
    oracle.near_sums.emplace_back(n);
    oracle.num_unsure.emplace_back(n);
  }
  for (size_t row = 0; row < visible.size() / num_kv_heads; ++row) {
    for (size_t head = 0; head < num_kv_heads * group; ++head) {
      const size_t kv_head = head / group;
      const size_t target = c.per_query_head ? head : kv_head;
      const int32_t n = visible[row * num_kv_heads + kv_head];
      const std::vector<double> e = ExpScores(queries.data() + (row * num_kv_heads * group + head) *
                                              dim, k[kv_head], dim, static_cast<size_t>(n));
      double sum = 0.0;
      for (const double x : e) {
        sum += x;
      }
      for (int32_t slot = 0; slot < n; ++slot) {
        const auto i = static_cast<size_t>(slot);
        const double ratio = e[i] / sum * n;
        const bool counts = ratio >= 1.0;
        const bool is_probability = c.kind == ColumnKind::kProbability;
        const double addend = is_probability ? e[i] / sum * double{kColumnUnit} : counts;
        oracle.sums[target][i] += addend;
        oracle.near_sums[target][i] += slot >= n - c.near_slots ? addend : 0.0;
        oracle.num_unsure[target][i] += is_probability || std::abs(ratio - 1.0) < 1e-4 ? 1 : 0;
      }
    }
  }
  return oracle;
}

}  // namespace headroom::kernels
