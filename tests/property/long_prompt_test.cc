// Long prompts on the shape of the needle models (random weights): positions, pages and receipts
// are exact at 32,768 tokens. With HEADROOM_LONG_PROMPT=131072 the same at that length, and TSP's
// speed-up on one thread against the ratio of floating point operations, attention included.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "engine/counting_kv_store.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/forward_driver.h"
#include "tests/support/kv_fixture.h"

namespace headroom::testing {
namespace {

constexpr int32_t kTspLayer = 2;
constexpr int32_t kChunk = 1024;

const TinyShape kNeedleShape = {.num_layers = 6,
                                .hidden_size = 128,
                                .intermediate_size = 352,
                                .num_heads = 4,
                                .num_kv_heads = 2,
                                .head_dim = 32,
                                .vocab_size = 512,
                                .seed = 5};

int32_t PromptTokensWanted() {
  const char* text = std::getenv("HEADROOM_LONG_PROMPT");
  return text == nullptr ? 32'768 : std::atoi(text);
}

std::unique_ptr<kernels::Backend> MakeBackend() {
  auto backend = kernels::CreateCpuBackend({.num_threads = 1});
  HEADROOM_CHECK(backend.ok());
  return std::move(*backend);
}

KvFixtureOptions Options(int32_t num_tokens) {
  const int32_t pages =
      (num_tokens / kernels::kPageSize + 2) * kNeedleShape.num_layers * kNeedleShape.num_kv_heads;
  return {.shape = kNeedleShape,
          .tsp_layer = kTspLayer,
          .num_pages = pages + pages / 2,
          .max_rows = kChunk,
          .dtype = kernels::KvDType::kBF16};
}

struct Prefilled {
  engine::KvReceipt receipt;
  std::vector<std::vector<std::vector<int32_t>>> kept;  // [layer][kv head], positions
  std::vector<int32_t> rows;                            // that went on above the TSP layer
  int64_t pages = 0;
  int64_t attended_slots = 0;
  double cpu_seconds = 0.0;
};

Prefilled RunPrefill(KvFixture& fixture, const engine::KvPolicySpec& spec, int32_t num_tokens) {
  engine::CountingKvStore store(fixture.cache());
  ForwardDriver driver(fixture.model(), fixture.cache(), store);
  DrivenSequence sequence;
  sequence.prompt = RandomTokens(num_tokens, kNeedleShape.vocab_size, 3);
  sequence.spec = spec;
  sequence.chunk = kChunk;
  driver.Open(sequence);
  const std::clock_t begin = std::clock();  // of the one thread: no other program's
  driver.Prefill(sequence);
  Prefilled result;
  result.cpu_seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  result.receipt = fixture.cache().receipt(sequence.handle);
  result.kept = driver.Kept(sequence);
  const auto last = static_cast<int32_t>(fixture.cache().phases(sequence.handle).size()) - 1;
  const auto rows = fixture.cache().phase_rows(sequence.handle, last);
  result.rows.assign(rows.begin(), rows.end());
  result.pages = fixture.cache().pages_held(sequence.handle);
  result.attended_slots = store.attended_slots();
  driver.Close(sequence);
  return result;
}

// Operations of a prefill: two for each multiplication with a weight, four for each element of a
// head that a query attends to.
double Flops(const Prefilled& prefilled, int32_t num_tokens) {
  const TinyShape& shape = kNeedleShape;
  const double kv_width = 2.0 * shape.num_kv_heads * shape.head_dim;
  const double query_width = double{1} * shape.num_heads * shape.head_dim;
  const double projections = shape.hidden_size * (kv_width + query_width) +
                             query_width * shape.hidden_size +
                             3.0 * shape.hidden_size * shape.intermediate_size;
  const auto above = static_cast<double>(prefilled.rows.size());
  const double layer_rows =
      double{1} * num_tokens * kTspLayer + above * (shape.num_layers - kTspLayer);
  const double tail = (num_tokens - above) * shape.hidden_size * kv_width;
  const double group = double{1} * shape.num_heads / shape.num_kv_heads;
  return 2.0 * (layer_rows * projections + tail) +
         4.0 * static_cast<double>(prefilled.attended_slots) * group * shape.head_dim;
}

// Prints and checks TSP's speed-up over a prefill of everything.
void ExpectTspSavesTheTimeOfItsOperations(KvFixture& fixture, const Prefilled& fastkv,
                                          int32_t num_tokens) {
  const Prefilled full = RunPrefill(fixture, MakeKvSpec("full", 1'000'000, 1'000'000), num_tokens);
  const double flop_ratio = Flops(full, num_tokens) / Flops(fastkv, num_tokens);
  const double speed_up = full.cpu_seconds / fastkv.cpu_seconds;
  std::printf("%d tokens: full %.1f s, fastkv %.1f s, speed-up %.3f, FLOP ratio %.3f, %.3f of it\n",
              num_tokens, full.cpu_seconds, fastkv.cpu_seconds, speed_up, flop_ratio,
              speed_up / flop_ratio);
  EXPECT_GE(speed_up, 0.9 * flop_ratio);
}

TEST(LongPromptTest, PositionsPagesAndReceiptAreExact) {
  const int32_t num_tokens = PromptTokensWanted();
  KvFixture fixture(MakeTinyModel(kNeedleShape), Options(num_tokens), MakeBackend());
  const engine::KvPolicySpec spec = MakeKvSpec("fastkv", 100'000, 200'000);
  const Prefilled fastkv = RunPrefill(fixture, spec, num_tokens);

  const int32_t num_kept = num_tokens / 10;
  const int32_t num_rows = num_tokens / 5;
  const int64_t heads = int64_t{kNeedleShape.num_layers} * kNeedleShape.num_kv_heads;
  EXPECT_EQ(fastkv.receipt.prompt_tokens, num_tokens);
  EXPECT_EQ(fastkv.receipt.propagated_tokens, num_rows);
  EXPECT_EQ(fastkv.receipt.entries, heads * num_kept);
  EXPECT_EQ(fastkv.receipt.entries_full, heads * num_tokens);
  EXPECT_EQ(fastkv.receipt.bytes, heads * num_kept * 2 * kNeedleShape.head_dim * 2);
  EXPECT_EQ(fastkv.pages, heads * ((num_kept + kernels::kPageSize - 1) / kernels::kPageSize));
  EXPECT_EQ(fastkv.receipt.pages, fastkv.pages);
  ASSERT_EQ(fastkv.rows.size(), static_cast<size_t>(num_rows));

  for (size_t layer = 0; layer < fastkv.kept.size(); ++layer) {
    for (const std::vector<int32_t>& positions : fastkv.kept[layer]) {
      ASSERT_EQ(positions.size(), static_cast<size_t>(num_kept)) << "layer " << layer;
      EXPECT_TRUE(std::is_sorted(positions.begin(), positions.end(), std::less_equal<int32_t>()));
      EXPECT_EQ(positions[1], 1) << "sinks";
      EXPECT_EQ(positions.back(), num_tokens - 1);
      EXPECT_EQ(positions[positions.size() - 4], num_tokens - 4) << "window";
      if (layer > static_cast<size_t>(kTspLayer)) {
        EXPECT_TRUE(std::includes(fastkv.rows.begin(), fastkv.rows.end(), positions.begin(),
                                  positions.end()))
            << "layer " << layer;
      }
    }
  }
  EXPECT_EQ(fixture.cache().pool().num_free(), fixture.cache().pool().num_pages());
  if (std::getenv("HEADROOM_LONG_PROMPT") != nullptr) {
    ExpectTspSavesTheTimeOfItsOperations(fixture, fastkv, num_tokens);
  }
}

}  // namespace
}  // namespace headroom::testing
