// The hand-built model does what its header says: it copies, needs its induction head's K and V for
// that and not those of the head that looks at BOS alone, and has no other use of the prompt.
#include "tests/support/hand_built_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/forward_driver.h"
#include "tests/support/kv_fixture.h"

namespace headroom::testing {
namespace {

constexpr int32_t kTokens = 1200;

// Keeps everything but one KV head, which keeps only its last four slots.
class OneHeadLostPolicy final : public engine::KvPolicy {
 public:
  OneHeadLostPolicy(int32_t layer, int32_t kv_head) : layer_(layer), kv_head_(kv_head) {}
  std::string name() const override { return "one_head_lost"; }
  Status Validate(const engine::KvPolicySpec& spec) const override { return OkStatus(); }
  engine::ScoreNeeds Needs(const engine::KvPolicySpec& spec, const engine::KvModelShape& shape,
                           const engine::PromptInfo& prompt) const override {
    return {};
  }
  engine::LayerPlan PlanPrefill(const engine::KvPolicySpec& spec, const engine::KvModelShape& shape,
                                const engine::PromptInfo& prompt, int32_t layer,
                                int32_t num_slots) const override {
    engine::LayerPlan plan;
    if (layer != layer_) {
      return plan;
    }
    plan.keep_all = false;
    plan.heads.resize(static_cast<size_t>(shape.num_kv_heads));
    for (int32_t head = 0; head < shape.num_kv_heads; ++head) {
      plan.heads[static_cast<size_t>(head)].num_entries = head == kv_head_ ? 4 : num_slots;
      plan.heads[static_cast<size_t>(head)].recent_slots = head == kv_head_ ? 4 : 0;
    }
    return plan;
  }

 private:
  int32_t layer_;
  int32_t kv_head_;
};

// What the model says behind the question, with `policy` and the question fed as a decode row.
int32_t Answer(KvFixture& fixture, const std::string& policy, const std::vector<int32_t>& prompt) {
  ForwardDriver driver(fixture.model(), fixture.cache());
  return NextToken(driver, MakeKvSpec(policy, 1'000'000, 1'000'000), prompt);
}

std::unique_ptr<KvFixture> MakeFixture(bool swapped) {
  auto backend = kernels::CreateCpuBackend({.num_threads = 1});
  HEADROOM_CHECK(backend.ok());
  KvFixtureOptions options;
  options.max_rows = 512;
  return std::make_unique<KvFixture>(MakeHandBuiltModel({.swapped = swapped}), options,
                                     std::move(*backend));
}

TEST(HandBuiltModelTest, CopiesTheCodeBehindAnEarlierOccurrence) {
  for (const bool swapped : {false, true}) {
    const auto fixture = MakeFixture(swapped);
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      int32_t answer = -1;
      int32_t position = -1;
      const std::vector<int32_t> prompt = HandBuiltQuestion(kTokens, seed, &answer, &position);
      EXPECT_EQ(Answer(*fixture, "full", prompt), answer) << "swapped " << swapped;
    }
  }
}

TEST(HandBuiltModelTest, LosingTheInductionHeadsCacheBreaksTheCopyAndNoOtherHeads) {
  const auto fixture = MakeFixture(false);
  int32_t answer = -1;
  int32_t position = -1;
  const std::vector<int32_t> prompt = HandBuiltQuestion(kTokens, 5, &answer, &position);
  for (int32_t layer = 0; layer < kHandBuiltLayers; ++layer) {
    for (int32_t head = 0; head < kHandBuiltKvHeads; ++head) {
      fixture->policies().Add(std::make_unique<OneHeadLostPolicy>(layer, head));
      const bool copies = Answer(*fixture, "one_head_lost", prompt) == answer;
      EXPECT_EQ(copies, layer != 1 || head != 0) << "layer " << layer << ", KV head " << head;
    }
  }
}

TEST(HandBuiltModelTest, PromptsRepeatNoCode) {
  std::vector<int32_t> prompt = HandBuiltPrompt(2000, 1);
  EXPECT_EQ(prompt.size(), 2000u);
  EXPECT_EQ(prompt.front(), 0);
  std::erase_if(prompt, [](int32_t id) { return id < 16; });
  std::sort(prompt.begin(), prompt.end());
  EXPECT_EQ(std::adjacent_find(prompt.begin(), prompt.end()), prompt.end());
  EXPECT_EQ(prompt.size(), 361u);
}

}  // namespace
}  // namespace headroom::testing
