// Typed decode of heads of unlike types, fastgen's rungs and adaptive's: against a dictionary per
// head, over two hundred rows.
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/kv/head_map.h"
#include "tests/support/dictionary_decoder.h"
#include "tests/support/forward_driver.h"
#include "tests/support/kv_fixture.h"
#include "tests/support/policy_cases.h"
#include "tests/support/test_map.h"

namespace headroom::engine {
namespace {

using testing::DictionaryDecoder;
using testing::DictionaryHead;
using testing::DrivenSequence;
using testing::ForwardDriver;
using testing::KvFixture;
using testing::KvFixtureOptions;

constexpr int32_t kTokens = 100;
constexpr int32_t kRows = 220;
constexpr int32_t kPage = kernels::kPageSize;
// A twentieth of the prompt is less than a page.
constexpr int32_t kPinnedRows = kPage;

// What a head is there for while it decodes.
struct Expected {
  DictionaryHead rules;
  bool pins_special = false;
  bool pins_punctuation = false;
};

class TypedHeadsTest : public ::testing::Test {
 protected:
  TypedHeadsTest()
      : fixture_(Options()),
        oracle_(
            std::make_unique<DictionaryDecoder>(fixture_.loaded(), testing::DictionaryRules())) {}

  static KvFixtureOptions Options() {
    KvFixtureOptions options;
    options.shape.num_layers = 5;
    return options;
  }

  // Runs the sequence to its end.
  void Run(const KvPolicySpec& spec) {
    const int32_t vocab = fixture_.loaded().config.vocab_size;
    sequence_.prompt = testing::RandomTokens(kTokens, vocab, 5);
    sequence_.feed = testing::RandomTokens(kRows, vocab, 6);
    sequence_.classes = testing::RandomClasses(kTokens, 7);
    sequence_.feed_classes = *testing::RandomClasses(kRows, 8);
    sequence_.spec = spec;
    ForwardDriver driver(fixture_.model(), fixture_.cache());
    driver.Open(sequence_);
    driver.Run({&sequence_});
    driver.Close(sequence_);
  }

  TokenClass ClassOf(int32_t position) const {
    return (*sequence_.classes)[static_cast<size_t>(position)];
  }
  const std::vector<int32_t>& Kept(int32_t row, int32_t layer, int32_t head) const {
    return sequence_
        .kept[static_cast<size_t>(row)][static_cast<size_t>(layer)][static_cast<size_t>(head)];
  }

  // A head that keeps what it was given and evicts by these rules.
  Expected Describe(int32_t layer, int32_t head, bool special, bool punctuation) const {
    Expected expected;
    expected.pins_special = special;
    expected.pins_punctuation = punctuation;
    const std::vector<int32_t>& kept = Kept(0, layer, head);
    expected.rules.kept = {kept.begin(), kept.end()};
    expected.rules.capacity = static_cast<int32_t>(kept.size()) + kPage + kPinnedRows;
    for (const int32_t position : kept) {
      if (position < sequence_.spec.sink_tokens ||
          (special && ClassOf(position) == TokenClass::kSpecial) ||
          (punctuation && ClassOf(position) == TokenClass::kPunctuation)) {
        expected.rules.pinned.insert(position);
      }
    }
    return expected;
  }

  void ExpectEqualsDictionary(const std::vector<std::vector<Expected>>& heads) {
    std::vector<std::vector<int32_t>> pins(heads.size(),
                                           std::vector<int32_t>(heads.front().size(), 0));
    const auto each = [&](const auto& visit) {
      for (int32_t layer = 0; layer < static_cast<int32_t>(heads.size()); ++layer) {
        for (int32_t head = 0; head < static_cast<int32_t>(heads.front().size()); ++head) {
          visit(layer, head, heads[static_cast<size_t>(layer)][static_cast<size_t>(head)]);
        }
      }
    };
    each([&](int32_t layer, int32_t head, const Expected& expected) {
      oracle_->Settle(layer, head, expected.rules);
    });
    for (int32_t row = 0; row < kRows; ++row) {
      const TokenClass is = sequence_.feed_classes[static_cast<size_t>(row)];
      each([&](int32_t layer, int32_t head, const Expected& expected) {
        int32_t& pinned = pins[static_cast<size_t>(layer)][static_cast<size_t>(head)];
        if (((expected.pins_special && is == TokenClass::kSpecial) ||
             (expected.pins_punctuation && is == TokenClass::kPunctuation)) &&
            pinned < kPinnedRows) {
          ++pinned;
          oracle_->PinNext(layer, head);
        }
      });
      oracle_->Next(sequence_.feed[static_cast<size_t>(row)]);
      each([&](int32_t layer, int32_t head, const Expected& expected) {
        ASSERT_EQ(Kept(row + 1, layer, head), oracle_->Positions(layer, head))
            << "row " << row << " layer " << layer << " head " << head
            << ", the closest cut so far " << oracle_->smallest_gap();
        if (!expected.rules.grows) {
          ASSERT_LE(Kept(row + 1, layer, head).size(),
                    static_cast<size_t>(expected.rules.capacity + kPage));
        }
      });
      if (HasFatalFailure()) {
        return;
      }
    }
  }

  KvFixture fixture_;
  std::unique_ptr<DictionaryDecoder> oracle_;
  DrivenSequence sequence_;
};

// A head's rung, read from what it kept: the sets of the rungs have different sizes.
int32_t RungOf(const std::set<int32_t>& kept, const std::set<int32_t>& special,
               const std::set<int32_t>& with_punctuation, int32_t heavy) {
  if (kept.size() == kTokens) {
    return 4;
  }
  if (kept == special) {
    return 0;
  }
  if (kept == with_punctuation) {
    return 1;
  }
  return kept.size() == with_punctuation.size() + static_cast<size_t>(heavy) ? 2 : 3;
}

TEST_F(TypedHeadsTest, FastgenHeadsStayOnTheirRung) {
  constexpr int32_t kLocal = 12;  // and as many heavy columns
  std::set<int32_t> seen;
  for (const int64_t theta : {100'000, 300'000, 450'000, 600'000, 750'000}) {
    SCOPED_TRACE(theta);
    sequence_ = {};
    oracle_ = std::make_unique<DictionaryDecoder>(fixture_.loaded(), testing::DictionaryRules());
    KvPolicySpec spec = testing::MakeKvSpec("fastgen", kPpm, kPpm, KvDecode::kTyped);
    spec.recovery_ppm = theta;
    spec.options.fraction_ppm = 120'000;
    Run(spec);
    // Heavy columns come from three of four of all hundred rows.
    oracle_->Read(sequence_.prompt, [](int32_t row) { return (kTokens - 1 - row) % 4 != 3; });
    std::set<int32_t> special;
    for (int32_t position = 0; position < kTokens; ++position) {
      if (position < spec.sink_tokens || ClassOf(position) == TokenClass::kSpecial) {
        special.insert(position);
      }
    }
    std::set<int32_t> punctuation = special;
    for (int32_t position = 0; position < kTokens; ++position) {
      if (ClassOf(position) == TokenClass::kPunctuation) {
        punctuation.insert(position);
      }
    }
    std::vector<std::vector<Expected>> heads;
    for (int32_t layer = 0; layer < 5; ++layer) {
      heads.emplace_back();
      for (int32_t head = 0; head < 2; ++head) {
        const std::vector<int32_t>& kept = Kept(0, layer, head);
        const int32_t rung = RungOf({kept.begin(), kept.end()}, special, punctuation, kLocal);
        seen.insert(rung);
        Expected expected = Describe(layer, head, true, rung > 0);
        if (rung == 2) {
          expected.rules.by_score = true;
          expected.rules.recent = kPage;
        } else if (rung == 3) {
          for (const int32_t position : kept) {
            if (position < kTokens - kLocal) {
              expected.rules.pinned.insert(position);
            }
          }
        } else {
          expected.rules.pinned.insert(kept.begin(), kept.end());
          expected.rules.grows = rung == 4;
        }
        heads.back().push_back(expected);
      }
    }
    ExpectEqualsDictionary(heads);
  }
  EXPECT_EQ(seen, (std::set<int32_t>{0, 1, 2, 3, 4}));
}

TEST_F(TypedHeadsTest, AdaptiveHeadsFollowTheirTypes) {
  HeadMap map = testing::MakeTestMap(5, 2, /*seed=*/3);
  for (HeadEntry& head : map.heads) {
    head.confidence_ppm = kPpm;
    head.borderline = false;
  }
  fixture_.policies().Add(MakeAdaptivePolicy(std::make_shared<const HeadMap>(map), "balanced",
                                             testing::kShortSettings));
  const KvPolicySpec spec = testing::MakeKvSpec("adaptive", 300'000, kPpm, KvDecode::kTyped);
  Run(spec);
  // Scores go on from the window's.
  oracle_->Read(sequence_.prompt, [&](int32_t row) { return row >= kTokens - spec.window; });
  std::vector<std::vector<Expected>> heads;
  std::set<HeadType> seen;
  for (int32_t layer = 0; layer < 5; ++layer) {
    heads.emplace_back();
    for (int32_t head = 0; head < 2; ++head) {
      const HeadEntry& entry = map.head(layer, head);
      seen.insert(entry.type);
      const bool keeps_punctuation = entry.type == HeadType::kPunct ||
                                     (entry.type == HeadType::kLocal && entry.keeps_punctuation);
      Expected expected = Describe(layer, head, true, keeps_punctuation);
      expected.rules.grows = entry.type == HeadType::kDense;
      if (expected.rules.grows) {
        expected.pins_special = false;
      }
      if (entry.type == HeadType::kHeavy) {
        expected.rules.by_score = true;
        expected.rules.recent = kPage;
        for (int32_t position = kTokens - spec.window; position < kTokens; ++position) {
          expected.rules.unscored.insert(position);
        }
      }
      heads.back().push_back(expected);
    }
  }
  EXPECT_EQ(seen.size(), 5u);
  ExpectEqualsDictionary(heads);
}

}  // namespace
}  // namespace headroom::engine
