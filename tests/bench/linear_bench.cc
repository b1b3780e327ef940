// Rates of linear layers, one thread, as a share of what the same run measured as the machine's
// peak. Usage: linear_bench [isa [num_threads]]
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "tests/bench/peak.h"

namespace headroom::bench {
namespace {

using kernels::Backend;
using kernels::Buffer;
using kernels::PackedWeight;

double SecondsOf(clockid_t clock) {
  timespec time = {};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// The best of many short runs in CPU time of this thread: neighbours only ever make a run slower.
// With several threads the caller's time stands for the wall clock, as it spins for the others.
template <typename Run>
double BestSeconds(double budget_seconds, const Run& run) {
  double best = 1e9;
  const double end = SecondsOf(CLOCK_MONOTONIC) + budget_seconds;
  do {
    const double begin = SecondsOf(CLOCK_THREAD_CPUTIME_ID);
    run();
    best = std::min(best, SecondsOf(CLOCK_THREAD_CPUTIME_ID) - begin);
  } while (SecondsOf(CLOCK_MONOTONIC) < end);
  return best;
}

struct Shape {
  DType dtype;
  int64_t rows;
  int64_t cols;
};

constexpr Shape kShapes[] = {
    {DType::kQ4_1, 960, 576},   {DType::kQ4_1, 576, 576},   {DType::kQ4_1, 3072, 576},
    {DType::kQ4_1, 576, 1536},  {DType::kQ8_0, 49152, 576}, {DType::kQ4_0, 3072, 576},
    {DType::kQ5_1, 3072, 576},  {DType::kQ8_0, 3072, 576},  {DType::kBF16, 960, 576},
    {DType::kBF16, 576, 576},   {DType::kBF16, 3072, 576},  {DType::kBF16, 576, 1536},
    {DType::kBF16, 49152, 576}, {DType::kF32, 3072, 576}};

std::vector<uint8_t> SomeBytes(int64_t num_bytes) {
  std::vector<uint8_t> bytes(static_cast<size_t>(num_bytes));
  uint32_t state = 1;
  for (uint8_t& byte : bytes) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<uint8_t>((state >> 24) & 0x3fu);  // no infinities as f16, bf16 or f32
  }
  return bytes;
}

struct Peaks {
  double int8_gops = 0.0;
  double bf16_gops = 0.0;
};

Peaks MeasurePeaks() {
  constexpr int64_t kSteps = 50000;
  return {
      Int8OpsPerStep() * kSteps * 1e-9 / BestSeconds(0.3, [] { RunInt8Peak(kSteps); }),
      Bf16OpsPerStep() * kSteps * 1e-9 / BestSeconds(0.3, [] { RunBf16Peak(kSteps); }),
  };
}

// Copies of one weight, at least `min_bytes` together, so that a stream comes from memory.
std::vector<std::unique_ptr<PackedWeight>> PackCopies(Backend& backend, const Shape& shape,
                                                      size_t min_bytes, double* pack_seconds) {
  const std::vector<uint8_t> bytes = SomeBytes(shape.rows * RowBytes(shape.dtype, shape.cols));
  const std::vector<TensorView> parts = {{bytes.data(), shape.dtype, shape.rows, shape.cols}};
  std::vector<std::unique_ptr<PackedWeight>> copies;
  size_t num_bytes = 0;
  const double begin = SecondsOf(CLOCK_THREAD_CPUTIME_ID);
  while (num_bytes < min_bytes || copies.empty()) {
    copies.push_back(backend.Pack(parts).value());
    num_bytes += copies.back()->num_bytes();
  }
  *pack_seconds = (SecondsOf(CLOCK_THREAD_CPUTIME_ID) - begin) / static_cast<double>(num_bytes);
  return copies;
}

void RunShape(Backend& backend, const Shape& shape, const Peaks& peaks) {
  constexpr int64_t kMaxRows = 512;
  double pack_seconds_per_byte = 0.0;
  const auto copies = PackCopies(backend, shape, size_t{200} << 20, &pack_seconds_per_byte);
  const auto x = backend.Allocate(static_cast<size_t>(kMaxRows * shape.cols * 4)).value();
  const auto out = backend.Allocate(static_cast<size_t>(kMaxRows * shape.rows * 4)).value();
  for (int64_t i = 0; i < kMaxRows * shape.cols; ++i) {
    x->floats()[i] = static_cast<float>(i * 37 % 101) - 50.0f;
  }
  const double peak = IsQuantized(shape.dtype) ? peaks.int8_gops : peaks.bf16_gops;
  fmt::print("{:5} [{:5},{:5}] pack {:4.1f} GB/s", GetDTypeInfo(shape.dtype).name, shape.rows,
             shape.cols, 1e-9 / pack_seconds_per_byte);
  size_t next = 0;
  for (const int64_t num_rows : {int64_t{512}, int64_t{64}, int64_t{8}, int64_t{1}}) {
    const auto call = [&](const PackedWeight& weight) {
      backend.Linear({.x = x->floats(),
                      .x_stride = shape.cols,
                      .num_rows = num_rows,
                      .weight = &weight,
                      .out = out->floats(),
                      .out_stride = shape.rows});
    };
    const double seconds = BestSeconds(0.25, [&] { call(*copies[next++ % copies.size()]); });
    const double ops = 2.0 * static_cast<double>(num_rows * shape.rows * shape.cols);
    fmt::print("  M={}: {:5.0f} GOP/s ({:3.0f}%)", num_rows, ops * 1e-9 / seconds,
               100.0 * ops * 1e-9 / seconds / peak);
  }
  // One pass over all copies: the weights come from memory (or the last-level cache).
  const double pass = BestSeconds(0.3, [&] {
    for (const auto& weight : copies) {
      backend.Linear({.x = x->floats(),
                      .x_stride = shape.cols,
                      .num_rows = 1,
                      .weight = weight.get(),
                      .out = out->floats(),
                      .out_stride = shape.rows});
    }
  });
  fmt::print("  stream {:.1f} GB/s\n",
             static_cast<double>(copies[0]->num_bytes() * copies.size()) * 1e-9 / pass);
}

int Main(int argc, char** argv) {
  const kernels::CpuBackendOptions options = {.isa = argc > 1 ? argv[1] : "auto",
                                              .num_threads = argc > 2 ? std::atoi(argv[2]) : 1};
  auto backend = kernels::CreateCpuBackend(options);
  if (!backend.ok()) {
    fmt::print(stderr, "{}\n", StatusMessage(backend.status()));
    return 1;
  }
  const Peaks peaks = kernels::CpuSupportsIsa("avx512") ? MeasurePeaks() : Peaks{};
  fmt::print("isa {}  peaks of one thread: int8 {:.0f} GOP/s, bf16 {:.0f} GF/s\n",
             (*backend)->isa(), peaks.int8_gops, peaks.bf16_gops);
  if (!(*backend)->ReserveWorkspace({.max_rows = 512, .max_cols = 1536}).ok()) {
    return 1;
  }
  for (const Shape& shape : kShapes) {
    RunShape(**backend, shape, peaks);
  }
  return 0;
}

}  // namespace
}  // namespace headroom::bench

int main(int argc, char** argv) { return headroom::bench::Main(argc, argv); }
