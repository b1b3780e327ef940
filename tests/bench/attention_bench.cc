// Speed of the cpu backend's attention on one thread, with every dtype of the cache: prefill and
// decode of one layer (head_dim 64, 3 KV heads, groups of 3), in GF/s and GB/s, beside the peak of
// bf16 dot products measured in the same run, and column scores beside attention on the same
// rows; then the times of int8 beside those of bf16. The cold decode walks layers of 256 MiB
// together, as a step of a model does. Usage: attention_bench [isa] [head_dim] [group_size]
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/attention_ops.h"
#include "tests/bench/peak.h"

namespace headroom::kernels {
namespace {

// This thread's own time: other processes on the machine do not count, the op runs on the caller.
double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double SecondsOf(const std::function<void()>& body) {
  const double begin = ThreadSeconds();
  body();
  return ThreadSeconds() - begin;
}

double BestSeconds(int num_tries, const std::function<void()>& body) {
  double best = 1e9;
  for (int i = 0; i < num_tries; ++i) {
    best = std::min(best, SecondsOf(body));
  }
  return best;
}

double Bf16PeakGflops() {
  constexpr int64_t kNumSteps = 20000;
  const double seconds = BestSeconds(100, [] { bench::RunBf16Peak(kNumSteps); });
  return static_cast<double>(kNumSteps) * bench::Bf16OpsPerStep() / seconds * 1e-9;
}

// One layer's cache of one sequence, filled with small numbers.
struct Layer {
  KvArena arena;
  std::vector<uint8_t> memory;
  std::vector<int32_t> pages;
  std::vector<KvHeadView> heads;

  Layer(const KvGeometry& geometry, int32_t num_slots) {
    const int32_t num_pages = (num_slots + kPageSize - 1) / kPageSize;
    const size_t page_bytes = AttentionOps::KvPageBytes(geometry);
    memory.resize(page_bytes * static_cast<size_t>(num_pages * geometry.num_kv_heads) + 64);
    const auto address = reinterpret_cast<uintptr_t>(memory.data());
    arena = {memory.data() + (64 - address % 64) % 64, page_bytes, geometry};
    pages.resize(static_cast<size_t>(num_pages * geometry.num_kv_heads));
    std::iota(pages.begin(), pages.end(), 0);
    for (int32_t head = 0; head < geometry.num_kv_heads; ++head) {
      heads.push_back({pages.data() + head * num_pages, num_slots});
    }
    std::vector<float> row(static_cast<size_t>(2 * geometry.head_dim));
    for (int64_t slot = 0; slot < int64_t{num_pages} * kPageSize * geometry.num_kv_heads; ++slot) {
      for (size_t d = 0; d < row.size(); ++d) {
        row[d] = static_cast<float>(static_cast<int>((slot * 31 + static_cast<int64_t>(d) * 17) %
                                                     64) - 32) / 32.0f;
      }
      AttentionOps::WriteKvSlot(arena, slot, row.data(), row.data() + geometry.head_dim);
    }
  }
};

// Rows [num_slots - num_rows, num_slots) of a causal prompt.
struct Rows {
  int64_t width = 0;
  std::vector<float> q;
  std::vector<int32_t> visible;

  Rows(const KvGeometry& g, int32_t num_slots, int32_t num_rows)
      : width(int64_t{g.num_kv_heads} * g.group_size * g.head_dim),
        q(static_cast<size_t>(num_rows * width)) {
    for (size_t i = 0; i < q.size(); ++i) {
      q[i] = static_cast<float>(static_cast<int>(i * 7 % 61) - 30) / 15.0f;
    }
    for (int32_t r = 0; r < num_rows; ++r) {
      visible.insert(visible.end(), static_cast<size_t>(g.num_kv_heads),
                     num_slots - num_rows + r + 1);
    }
  }
};

// Best of many, in seconds.
double AttentionSeconds(AttentionOps& ops, const Layer& layer, int32_t num_slots, int32_t num_rows,
                        int num_tries) {
  const Rows rows(layer.arena.geometry, num_slots, num_rows);
  std::vector<float> out(rows.q.size());
  const AttentionSegment segment = {0, num_rows, layer.heads.data()};
  const AttentionParams params = {.q = rows.q.data(), .q_stride = rows.width, .out = out.data(),
                                  .out_stride = rows.width, .scale = 0.125f, .arena = layer.arena,
                                  .segments = {&segment, 1}, .visible = rows.visible.data()};
  return BestSeconds(num_tries, [&] { ops.Attention(params); });
}

double ColumnSeconds(AttentionOps& ops, const Layer& layer, int32_t num_slots, int32_t num_rows,
                     bool per_query_head, int num_tries) {
  const KvGeometry& g = layer.arena.geometry;
  const Rows rows(g, num_slots, num_rows);
  const auto num_sums =
      static_cast<size_t>(per_query_head ? g.num_kv_heads * g.group_size : g.num_kv_heads);
  std::vector<int64_t> memory(2 * num_sums * static_cast<size_t>(num_slots));
  std::vector<int64_t*> sums;
  for (size_t i = 0; i < 2 * num_sums; ++i) {
    sums.push_back(memory.data() + i * static_cast<size_t>(num_slots));
  }
  const std::span<int64_t* const> all = sums;
  const ColumnScoresParams params = {
      .queries = rows.q.data(), .query_stride = rows.width, .num_rows = num_rows,
      .visible = rows.visible.data(), .scale = 0.125f, .arena = layer.arena,
      .heads = layer.heads.data(), .per_query_head = per_query_head, .near_slots = 128,
      .sums = all.first(num_sums), .near_sums = all.last(num_sums)};
  return BestSeconds(num_tries, [&] { ops.ColumnScores(params); });
}

void RunColumns(AttentionOps& ops, const KvGeometry& geometry) {
  const int32_t n = 2048;
  const Layer layer(geometry, n);
  for (const int32_t rows : {n, 512, 1}) {
    const int num_tries = rows == 1 ? 200 : 10;
    const double attention = AttentionSeconds(ops, layer, n, rows, num_tries);
    for (const bool per_query_head : {false, true}) {
      const double columns = ColumnSeconds(ops, layer, n, rows, per_query_head, num_tries);
      std::printf("columns rows %4d slots %5d per %s head: %7.3f ms, %.2f of attention's\n", rows,
                  n, per_query_head ? "query" : "KV", columns * 1e3, columns / attention);
    }
  }
}

AttentionKernels KernelsOf(const std::string& isa) {
  if (isa == "avx2") {
    return AttentionKernelsAvx2();
  }
  return isa == "scalar" ? AttentionKernelsScalar() : AttentionKernelsAvx512();
}

// Microseconds of a decode row in each of many layers, best of several walks through them.
double ColdDecodeMicros(AttentionOps& ops, const KvGeometry& geometry, int32_t num_slots) {
  std::vector<std::unique_ptr<Layer>> layers;
  for (size_t bytes = 0; bytes < size_t{256} << 20;) {
    layers.push_back(std::make_unique<Layer>(geometry, num_slots));
    bytes += layers.back()->memory.size();
  }
  double best = 1e9;
  for (int walk = 0; walk < 6; ++walk) {
    double sum = 0.0;
    for (const auto& layer : layers) {
      sum += AttentionSeconds(ops, *layer, num_slots, 1, 1);
    }
    best = std::min(best, sum / static_cast<double>(layers.size()));
  }
  return best * 1e6;
}

// Name of a measurement -> its time.
using Times = std::vector<std::pair<std::string, double>>;

Times Run(const std::string& isa, const char* dtype_name, const KvGeometry& geometry) {
  ThreadPool pool(1);
  AttentionOps ops(KernelsOf(isa), &pool);
  const int32_t head_dim = geometry.head_dim;
  const double peak = isa == "avx512" ? Bf16PeakGflops() : 0.0;
  std::printf("isa %s kv %s head_dim %d group %d peak %.0f GF/s\n", isa.c_str(), dtype_name,
              head_dim, geometry.group_size, peak);
  Times times;
  for (const int32_t n : {512, 2048, 8192}) {
    const Layer layer(geometry, n);
    const int32_t rows = std::min(n, 512);  // a chunk at the end of the prompt
    const double seconds = AttentionSeconds(ops, layer, n, rows, n > 4096 ? 10 : 40);
    const double keys = double(rows) * n - double(rows) * (rows - 1) / 2;
    const double gflops = 4.0 * keys * head_dim * 3 * geometry.group_size / seconds * 1e-9;
    times.emplace_back("prefill " + std::to_string(n), seconds);
    std::printf("prefill rows %4d slots %5d: %7.3f ms %6.1f GF/s (%.0f %% of peak)\n", rows, n,
                seconds * 1e3, gflops, peak > 0 ? 100 * gflops / peak : 0.0);
  }
  for (const int32_t n : {512, 2048, 8192, 32768}) {
    const Layer layer(geometry, n);
    const double seconds = AttentionSeconds(ops, layer, n, 1, n > 16384 ? 100 : 400);
    const double cold_us = ColdDecodeMicros(ops, geometry, n);
    times.emplace_back("decode " + std::to_string(n), seconds);
    times.emplace_back("cold decode " + std::to_string(n), cold_us * 1e-6);
    const double bytes = double(n) / kPageSize * 3 * double(layer.arena.page_bytes);
    std::printf("decode  slots %5d: %8.1f us %6.1f GB/s, cold %8.1f us %6.1f GB/s\n", n,
                seconds * 1e6, bytes / seconds * 1e-9, cold_us, bytes / cold_us * 1e-3);
  }
  RunColumns(ops, geometry);
  return times;
}

}  // namespace
}  // namespace headroom::kernels

int main(int argc, char** argv) {
  const std::string isa = argc > 1 ? argv[1] : "avx512";
  const int head_dim = argc > 2 ? std::atoi(argv[2]) : 64;
  const int group_size = argc > 3 ? std::atoi(argv[3]) : 3;
  using headroom::kernels::KvDType;
  headroom::kernels::Run(isa, "f32", {3, group_size, head_dim, KvDType::kF32});
  const auto bf16 = headroom::kernels::Run(isa, "bf16", {3, group_size, head_dim, KvDType::kBF16});
  const auto int8 = headroom::kernels::Run(isa, "int8", {3, group_size, head_dim, KvDType::kInt8});
  for (size_t i = 0; i < bf16.size(); ++i) {
    std::printf("int8 / bf16 time, %-18s %.2f\n", bf16[i].first.c_str(),
                int8[i].second / bf16[i].second);
  }
  return 0;
}
