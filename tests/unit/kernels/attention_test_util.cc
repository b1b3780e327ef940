#include "tests/unit/kernels/attention_test_util.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/philox.h"
#include "kernels/cpu/cpu_backend.h"

namespace headroom::kernels {

const std::vector<IsaCase>& AllIsas() {
  static const std::vector<IsaCase> isas = {
      {"scalar", true, AttentionKernelsScalar},
      {"avx2", CpuSupportsIsa("avx2"), AttentionKernelsAvx2},
      {"avx512Fma", CpuSupportsIsa("avx512"), [] { return AttentionKernelsAvx512(false); }},
      {"avx512Dot", CpuSupportsIsa("avx512"), [] { return AttentionKernelsAvx512(true); }},
  };
  return isas;
}

std::string SkipText(const IsaCase& isa) { return "hardware: this machine lacks " + isa.name; }

float TestValue(uint64_t seed, uint64_t index) {
  return static_cast<float>(2.0 * Philox(seed).Uniform(index) - 1.0);
}

float RoundToBf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
  return std::bit_cast<float>(rounded);
}

std::string DTypeName(KvDType dtype) {
  return dtype == KvDType::kF32 ? "F32" : dtype == KvDType::kBF16 ? "Bf16" : "Int8";
}

float Int8Scale(std::span<const float> x) {
  float largest = 0.0f;
  for (const float value : x) {
    largest = std::max(largest, std::abs(value));
  }
  const float scale = largest / 127.0f;
  return scale < std::numeric_limits<float>::min() ? 0.0f : scale;
}

std::vector<float> AsStored(std::span<const float> x, KvDType dtype) {
  std::vector<float> stored(x.begin(), x.end());
  const float scale = Int8Scale(x);
  for (float& value : stored) {
    if (dtype == KvDType::kBF16) {
      value = RoundToBf16(value);
    } else if (dtype == KvDType::kInt8) {
      value = scale == 0.0f ? 0.0f : std::rint(value / scale) * scale;
    }
  }
  return stored;
}

TestCache::TestCache(const KvGeometry& shape, const std::vector<int32_t>& num_slots, uint64_t seed,
                     uint64_t placement_seed, float spread)
    : geometry(shape) {
  int32_t num_pages = 0;
  for (const int32_t slots : num_slots) {
    num_pages += (slots + kPageSize - 1) / kPageSize;
  }
  std::vector<int32_t> order(static_cast<size_t>(num_pages));
  std::iota(order.begin(), order.end(), 0);
  if (placement_seed != 0) {
    const Philox random(placement_seed);
    for (size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[static_cast<size_t>(random.Uniform(i) * double(i))]);
    }
  }
  const size_t page_bytes = AttentionOps::KvPageBytes(geometry);
  memory.assign(page_bytes * static_cast<size_t>(num_pages) + 64, 0xff);
  const uintptr_t address = reinterpret_cast<uintptr_t>(memory.data());
  arena = {memory.data() + (64 - address % 64) % 64, page_bytes, geometry};
  size_t next_page = 0;
  const size_t dim = static_cast<size_t>(geometry.head_dim);
  std::vector<float> row(2 * dim);
  for (size_t head = 0; head < num_slots.size(); ++head) {
    const size_t head_pages = static_cast<size_t>((num_slots[head] + kPageSize - 1) / kPageSize);
    const auto first = order.begin() + static_cast<std::ptrdiff_t>(next_page);
    pages.emplace_back(first, first + static_cast<std::ptrdiff_t>(head_pages));
    next_page += head_pages;
    k.emplace_back();
    v.emplace_back();
    for (int32_t slot = 0; slot < num_slots[head]; ++slot) {
      const uint64_t first_index = (head << 40) + (static_cast<uint64_t>(slot) << 12);
      for (size_t d = 0; d < row.size(); ++d) {
        const float exponent = TestValue(seed, first_index + (d < dim ? 4000 : 4001));
        row[d] = std::pow(spread, exponent) * TestValue(seed, first_index + d);
      }
      const std::vector<float> stored_k = AsStored({row.data(), dim}, geometry.dtype);
      const std::vector<float> stored_v = AsStored({row.data() + dim, dim}, geometry.dtype);
      k.back().insert(k.back().end(), stored_k.begin(), stored_k.end());
      v.back().insert(v.back().end(), stored_v.begin(), stored_v.end());
      AttentionOps::WriteKvSlot(arena, SlotOf(static_cast<int32_t>(head), slot), row.data(),
                                row.data() + dim);
    }
  }
  for (size_t head = 0; head < num_slots.size(); ++head) {
    heads.push_back({pages[head].data(), num_slots[head]});
  }
}

int64_t TestCache::SlotOf(int32_t head, int32_t index) const {
  const int32_t page = pages[static_cast<size_t>(head)][static_cast<size_t>(index / kPageSize)];
  return int64_t{page} * kPageSize + index % kPageSize;
}

std::vector<float> MakeQueries(const TestCache& cache, int64_t num_rows, uint64_t seed) {
  std::vector<float> queries(static_cast<size_t>(num_rows * cache.QueryWidth()));
  for (size_t i = 0; i < queries.size(); ++i) {
    queries[i] = 3.0f * TestValue(seed, i);
  }
  return queries;
}

std::vector<float> RunAttention(const TestCache& cache, const std::vector<float>& queries,
                                const std::vector<int32_t>& visible, float scale,
                                const AttentionKernels& kernels, int num_threads) {
  ThreadPool pool(num_threads);
  AttentionOps ops(kernels, &pool);
  const int64_t width = cache.QueryWidth();
  const int64_t num_rows = static_cast<int64_t>(queries.size()) / width;
  std::vector<float> out(queries.size(), std::nanf(""));
  const AttentionSegment segment = {0, num_rows, cache.heads.data()};
  ops.Attention({.q = queries.data(), .q_stride = width, .out = out.data(), .out_stride = width,
                 .scale = scale, .arena = cache.arena, .segments = {&segment, 1},
                 .visible = visible.data()});
  return out;
}

AttentionOracle ComputeAttentionOracle(const TestCache& cache, const std::vector<float>& queries,
                                       const std::vector<int32_t>& visible, float scale) {
  const KvGeometry& g = cache.geometry;
  const size_t dim = static_cast<size_t>(g.head_dim);
  const size_t num_heads = static_cast<size_t>(g.num_kv_heads * g.group_size);
  AttentionOracle oracle;
  oracle.out.resize(queries.size());
  oracle.bound.resize(queries.size());
  for (size_t i = 0; i < queries.size() / dim; ++i) {
    const size_t kv_head = i % num_heads / static_cast<size_t>(g.group_size);
    const size_t row = i / num_heads;
    const int32_t n = visible[row * static_cast<size_t>(g.num_kv_heads) + kv_head];
    std::vector<double> scores(static_cast<size_t>(n));
    for (size_t slot = 0; slot < scores.size(); ++slot) {
      for (size_t d = 0; d < dim; ++d) {
        const float q = queries[i * dim + d] * scale;
        scores[slot] += double{g.dtype == KvDType::kBF16 ? RoundToBf16(q) : q} *
                        cache.k[kv_head][slot * dim + d];
      }
    }
    const double max = *std::max_element(scores.begin(), scores.end());
    double sum = 0.0;
    for (double& s : scores) {
      s = std::exp(s - max);
      sum += s;
    }
    for (size_t slot = 0; slot < scores.size(); ++slot) {
      for (size_t d = 0; d < dim; ++d) {
        const double x = scores[slot] / sum * cache.v[kv_head][slot * dim + d];
        oracle.out[i * dim + d] += x;
        oracle.bound[i * dim + d] += std::abs(x);
      }
    }
  }
  return oracle;
}

}  // namespace headroom::kernels
