// One prefill for all policies of a prompt: the same as a prefill for each, and only one.
#include "profiler/evaluation/prompt_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine/token_classes.h"
#include "tests/support/kv_fixture.h"
#include "tests/support/policy_cases.h"

namespace headroom::profiler {
namespace {

using engine::kPpm;
using engine::KvPolicySpec;
using headroom::testing::KvFixture;
using headroom::testing::MakeKvSpec;

constexpr int32_t kPrompt = 60;
constexpr int32_t kFed = 30;
constexpr int32_t kRows = 24;  // of a forward pass: the prompt takes three

// Counts the rows that enter a model.
class CountingModel final : public models::Model {
 public:
  explicit CountingModel(models::Model& inner) : inner_(inner) {}
  const models::ModelConfig& config() const override { return inner_.config(); }
  void Forward(const models::ForwardBatch& batch, models::KvStore& store) override {
    num_rows += static_cast<int64_t>(batch.token_ids.size());
    inner_.Forward(batch, store);
  }

  int64_t num_rows = 0;

 private:
  models::Model& inner_;
};

class PromptSourceTest : public ::testing::Test {
 protected:
  PromptSourceTest()
      : fixture_(headroom::testing::KvFixtureOptions{}),
        model_(fixture_.model()),
        runner_(model_, fixture_.cache(), kRows, Classes()) {
    const int32_t vocab = fixture_.loaded().config.vocab_size;
    prompt_.ids = headroom::testing::RandomTokens(kPrompt, vocab, 1);
    prompt_.content_end = kPrompt;
    fed_ = headroom::testing::RandomTokens(kFed, vocab, 2);
  }

  engine::TokenClasses Classes() const {
    return headroom::testing::RandomClasses(fixture_.loaded().config.vocab_size, 3);
  }

  // What a sequence holds and says: positions of every head, the last prompt row's logits, those
  // of the fed tokens, and the counts of its receipt.
  struct Outcome {
    std::vector<std::vector<int32_t>> positions;
    std::vector<float> prompt_logits;
    std::vector<float> logits;
    int64_t entries = 0;
    int64_t bytes = 0;
    int64_t pages = 0;
    int64_t propagated = 0;
    int32_t next_position = 0;
    bool operator==(const Outcome&) const = default;
  };

  Outcome FeedAndClose(DecodingSequence sequence) {
    const engine::KvReceipt& receipt = runner_.cache().receipt(sequence.handle);
    Outcome outcome;
    outcome.prompt_logits = sequence.last_logits;
    outcome.entries = receipt.entries;
    outcome.bytes = receipt.bytes;
    outcome.pages = runner_.cache().pages_held(sequence.handle);
    outcome.propagated = receipt.propagated_tokens;
    outcome.next_position = sequence.next_position;
    for (int32_t layer = 0; layer < fixture_.shape().num_layers; ++layer) {
      for (int32_t head = 0; head < fixture_.shape().num_kv_heads; ++head) {
        outcome.positions.push_back(
            runner_.cache().Snapshot(sequence.handle, layer, head).positions);
      }
    }
    runner_.Feed(sequence, fed_, &outcome.logits);
    runner_.Close(sequence);
    const Status valid = runner_.cache().CheckInvariants();
    EXPECT_TRUE(valid.ok()) << StatusMessage(valid);
    return outcome;
  }

  KvFixture fixture_;
  CountingModel model_;
  SequenceRunner runner_;
  PromptTokens prompt_;
  std::vector<int32_t> fed_;
};

std::vector<KvPolicySpec> SharingSpecs() {
  std::vector<KvPolicySpec> specs = {MakeKvSpec("full", kPpm, kPpm)};
  for (const char* policy : {"snapkv", "adakv", "h2o", "streaming", "scissorhands", "fastkv"}) {
    specs.push_back(MakeKvSpec(policy, 500'000, kPpm));
    specs.push_back(MakeKvSpec(policy, 250'000, kPpm));
  }
  // Decode evicts here, so that every fed token is a forward pass of its own.
  specs.push_back(MakeKvSpec("streaming", 250'000, kPpm, engine::KvDecode::kTyped));
  for (const int64_t theta : {300'000, 600'000, 950'000}) {
    specs.push_back(MakeKvSpec("fastgen", kPpm, kPpm));
    specs.back().recovery_ppm = theta;
  }
  return specs;
}

TEST_F(PromptSourceTest, EveryPolicyEqualsItsOwnPrefillBitForBit) {
  const std::vector<KvPolicySpec> specs = SharingSpecs();
  {
    PromptSource source(runner_, prompt_, specs);
    for (const KvPolicySpec& spec : specs) {
      SCOPED_TRACE(spec.policy + " " + std::to_string(spec.retention_ppm));
      const Outcome shared = FeedAndClose(source.Open(spec));
      const Outcome alone = FeedAndClose(runner_.Prefill(prompt_, spec));
      EXPECT_EQ(shared, alone);
      if (spec.policy != "full" && spec.policy != "fastgen") {
        EXPECT_LT(alone.positions[0].size(), static_cast<size_t>(kPrompt));  // something is dropped
      }
    }
  }
  EXPECT_EQ(runner_.cache().num_sequences(), 0);
}

TEST_F(PromptSourceTest, PoliciesThatReadTheWholePromptShareOnePrefill) {
  const std::vector<KvPolicySpec> specs = SharingSpecs();
  PromptSource source(runner_, prompt_, specs);
  EXPECT_EQ(model_.num_rows, 0);
  for (int repeat = 0; repeat < 2; ++repeat) {
    for (const KvPolicySpec& spec : specs) {
      DecodingSequence sequence = source.Open(spec);
      runner_.Close(sequence);
    }
  }
  EXPECT_EQ(model_.num_rows, kPrompt);
}

TEST_F(PromptSourceTest, PoliciesThatChooseRowsReadThePromptThemselves) {
  const std::vector<KvPolicySpec> specs = {
      MakeKvSpec("full", kPpm, kPpm), MakeKvSpec("snapkv", 500'000, kPpm),
      MakeKvSpec("fastkv", 500'000, 500'000), MakeKvSpec("pyramidinfer", 500'000, kPpm),
      MakeKvSpec("gemfilter", 500'000, kPpm)};
  PromptSource source(runner_, prompt_, specs);
  for (const KvPolicySpec& spec : specs) {
    SCOPED_TRACE(spec.policy);
    const bool shares = &spec - specs.data() < 2;
    EXPECT_EQ(runner_.ReadsWhole(prompt_, spec), shares);
    const int64_t before = model_.num_rows;
    DecodingSequence sequence = source.Open(spec);
    const int64_t rows = model_.num_rows - before;
    // Phases after the first run some of the rows again.
    if (shares) {
      EXPECT_EQ(rows, spec.policy == "full" ? kPrompt : 0);
    } else {
      EXPECT_GT(rows, kPrompt);
    }
    const Outcome opened = FeedAndClose(std::move(sequence));
    EXPECT_EQ(opened, FeedAndClose(runner_.Prefill(prompt_, spec)));
  }
}

TEST_F(PromptSourceTest, APolicyAloneNeedsNoSource) {
  const KvPolicySpec spec = MakeKvSpec("snapkv", 500'000, kPpm);
  PromptSource source(runner_, prompt_, {spec});
  DecodingSequence sequence = source.Open(spec);
  EXPECT_EQ(runner_.cache().num_sequences(), 1);
  runner_.Close(sequence);
}

// Gemfilter reads the chosen rows as a prompt of their own: decode goes on at their number, and all
// is as if those tokens had been the prompt.
TEST_F(PromptSourceTest, ARestartedPromptEqualsAPromptOfItsRows) {
  const KvPolicySpec spec = MakeKvSpec("gemfilter", 400'000, kPpm);
  DecodingSequence sequence = runner_.Prefill(prompt_, spec);
  ASSERT_EQ(runner_.cache().phases(sequence.handle).size(), 2u);
  const std::span<const int32_t> rows = runner_.cache().phase_rows(sequence.handle, 1);
  ASSERT_EQ(rows.size(), 24u);
  EXPECT_NE(rows.back() - rows.front(), 23);  // not one run
  PromptTokens chosen;
  for (const int32_t row : rows) {
    chosen.ids.push_back(prompt_.ids[static_cast<size_t>(row)]);
  }
  chosen.content_end = 24;
  EXPECT_EQ(sequence.next_position, 24);
  const Outcome restarted = FeedAndClose(std::move(sequence));
  const Outcome fresh = FeedAndClose(runner_.Prefill(chosen, MakeKvSpec("full", kPpm, kPpm)));
  EXPECT_EQ(restarted.prompt_logits, fresh.prompt_logits);
  EXPECT_EQ(restarted.logits, fresh.logits);
}

// The ladder's cheapest rungs are special tokens and punctuation: without their classes it keeps
// other slots.
TEST_F(PromptSourceTest, FastgenSeesTheClassesOfTokens) {
  SequenceRunner blind(model_, fixture_.cache(), kRows);
  KvPolicySpec spec = MakeKvSpec("fastgen", kPpm, kPpm);
  spec.recovery_ppm = 300'000;
  const Outcome seeing = FeedAndClose(runner_.Prefill(prompt_, spec));
  const Outcome unseeing = FeedAndClose(blind.Prefill(prompt_, spec));
  EXPECT_NE(seeing.positions, unseeing.positions);
  const auto classes = engine::ClassifyPrompt(Classes(), prompt_.ids);
  int32_t num_special = 0;
  for (const std::vector<int32_t>& kept : seeing.positions) {
    for (int32_t position = 0; position < kPrompt; ++position) {
      if ((*classes)[static_cast<size_t>(position)] == engine::TokenClass::kSpecial) {
        EXPECT_TRUE(std::binary_search(kept.begin(), kept.end(), position)) << position;
        ++num_special;
      }
    }
  }
  EXPECT_GT(num_special, 0);
}

}  // namespace
}  // namespace headroom::profiler
