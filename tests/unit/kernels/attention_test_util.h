// Caches and oracles for the tests of the cpu backend's attention ops.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/cpu/attention_ops.h"

namespace headroom::kernels {

// Kernel tables to test, by name. Those that the machine lacks are absent; SkipText says why.
struct IsaCase {
  std::string name;
  bool is_supported = false;
  AttentionKernels (*kernels)() = nullptr;
};
const std::vector<IsaCase>& AllIsas();
// "hardware: ..." for GTEST_SKIP.
std::string SkipText(const IsaCase& isa);

// Uniform in [-1, 1), a function of (seed, index).
float TestValue(uint64_t seed, uint64_t index);

// Every dtype of a KV cache, and its name.
inline constexpr KvDType kAllKvDTypes[] = {KvDType::kBF16, KvDType::kF32, KvDType::kInt8};
std::string DTypeName(KvDType dtype);

// To the nearest bf16, ties to even (finite values).
float RoundToBf16(float x);

// The scale that int8 holds finite x with, and x as a cache of a dtype holds it, by their
// definitions in kernels/ops.h.
float Int8Scale(std::span<const float> x);
std::vector<float> AsStored(std::span<const float> x, KvDType dtype);

// A cache of one sequence and layer whose heads have lengths of their own and whose pages lie
// anywhere. Holds the values as doubles too, rounded as the pages hold them.
struct TestCache {
  KvGeometry geometry;
  std::vector<uint8_t> memory;
  KvArena arena;
  std::vector<std::vector<int32_t>> pages;  // [num_kv_heads]
  std::vector<KvHeadView> heads;            // [num_kv_heads]
  std::vector<std::vector<double>> k;       // [num_kv_heads][num_slots, head_dim]
  std::vector<std::vector<double>> v;

  // Values depend on (seed, head, slot, dim) alone: uniform in +-m, m a number of its own in
  // [1 / spread, spread] for K and for V of each token. placement_seed 0: pages in order, else
  // shuffled. Every byte that no slot uses is 0xff: NaN in f32, bf16 and the scales of int8.
  TestCache(const KvGeometry& shape, const std::vector<int32_t>& num_slots, uint64_t seed,
            uint64_t placement_seed, float spread = 1.0f);

  int64_t SlotOf(int32_t head, int32_t index) const;
  int64_t QueryWidth() const {
    return int64_t{geometry.num_kv_heads} * geometry.group_size * geometry.head_dim;
  }
};

// Queries [num_rows, QueryWidth()].
std::vector<float> MakeQueries(const TestCache& cache, int64_t num_rows, uint64_t seed);

// Runs one attention call of a single segment. visible: [num_rows, num_kv_heads].
std::vector<float> RunAttention(const TestCache& cache, const std::vector<float>& queries,
                                const std::vector<int32_t>& visible, float scale,
                                const AttentionKernels& kernels, int num_threads);

// The definition in doubles. bound[i] = sum of p |v|: what errors of p scale with.
struct AttentionOracle {
  std::vector<double> out;
  std::vector<double> bound;
};
AttentionOracle ComputeAttentionOracle(const TestCache& cache, const std::vector<float>& queries,
                                       const std::vector<int32_t>& visible, float scale);

}  // namespace headroom::kernels
