// kv_head_check: what held-out rows find, against attention in double precision.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
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
using testing::DrivenSequence;
using testing::ForwardDriver;
using testing::KvFixture;
using testing::KvFixtureOptions;

constexpr int32_t kTokens = 100;
constexpr int32_t kCheckRows = 32;
constexpr int32_t kLayers = 5;
constexpr int32_t kHeads = 2;

class HeadCheckTest : public ::testing::Test {
 protected:
  HeadCheckTest() : fixture_(Options()), map_(testing::MakeTestMap(kLayers, kHeads, /*seed=*/3)) {
    for (HeadEntry& head : map_.heads) {
      head.confidence_ppm = kPpm;
      head.borderline = false;
      head.window = std::max(1, head.window);
    }
    fixture_.policies().Add(MakeAdaptivePolicy(std::make_shared<const HeadMap>(map_), "balanced",
                                               testing::kShortSettings));
    spec_ = testing::MakeKvSpec("adaptive", 450'000, kPpm);
    spec_.options.local_share_ppm = 500'000;  // quotas are whole, and heavy heads are not
  }

  static KvFixtureOptions Options() {
    KvFixtureOptions options;
    options.shape.num_layers = kLayers;
    return options;
  }

  struct Checked {
    std::vector<std::vector<std::vector<int32_t>>> kept;
    KvReceipt receipt;
  };

  Checked Prefill(const KvPolicySpec& spec) {
    DrivenSequence sequence;
    sequence.prompt = testing::RandomTokens(kTokens, fixture_.loaded().config.vocab_size, 5);
    sequence.classes = testing::RandomClasses(kTokens, 7);
    sequence.spec = spec;
    sequence.chunk = 9;
    ForwardDriver driver(fixture_.model(), fixture_.cache());
    driver.Open(sequence);
    driver.Prefill(sequence);
    Checked checked = {.kept = driver.Kept(sequence),
                       .receipt = fixture_.cache().receipt(sequence.handle)};
    driver.Close(sequence);
    return checked;
  }

  Checked PrefillChecked(int64_t theta) {
    KvPolicySpec spec = spec_;
    spec.head_check = true;
    spec.recovery_ppm = theta;
    return Prefill(spec);
  }

  // Mean mass of each head's set and each row's own last tokens, by the neediest query head.
  std::vector<std::vector<double>> Masses(
      const std::vector<std::vector<std::vector<int32_t>>>& kept) {
    const int32_t group = fixture_.loaded().config.group_size();
    const int32_t near = 6;  // the settings' recent tokens
    std::vector<std::vector<double>> sums(
        kLayers, std::vector<double>(static_cast<size_t>(kHeads * group), 0.0));
    DictionaryDecoder oracle(fixture_.loaded(), {});
    oracle.Watch([&](int32_t layer, int32_t query_head, int32_t row,
                     const std::vector<double>& probabilities) {
      const int32_t end = kTokens - spec_.window;
      if (row < end - kCheckRows || row >= end) {
        return;
      }
      const std::vector<int32_t>& set =
          kept[static_cast<size_t>(layer)][static_cast<size_t>(query_head / group)];
      for (int32_t position = 0; position <= row; ++position) {
        if (position > row - near || std::binary_search(set.begin(), set.end(), position)) {
          sums[static_cast<size_t>(layer)][static_cast<size_t>(query_head)] +=
              probabilities[static_cast<size_t>(position)] / kCheckRows;
        }
      }
    });
    oracle.Read(testing::RandomTokens(kTokens, fixture_.loaded().config.vocab_size, 5),
                [](int32_t) { return true; });
    std::vector<std::vector<double>> masses;
    for (const std::vector<double>& layer : sums) {
      masses.emplace_back();
      for (auto head = layer.begin(); head != layer.end(); head += group) {
        masses.back().push_back(*std::min_element(head, head + group));
      }
    }
    return masses;
  }

  bool IsFixed(int32_t layer, int32_t head) const {
    return map_.head(layer, head).type < HeadType::kHeavy;
  }

  KvFixture fixture_;
  HeadMap map_;
  KvPolicySpec spec_;
};

TEST_F(HeadCheckTest, GivesMoreToExactlyTheFixedHeadsWhoseMassIsTooSmall) {
  const Checked plain = Prefill(spec_);
  EXPECT_TRUE(plain.receipt.reasons.empty());
  const std::vector<std::vector<double>> masses = Masses(plain.kept);
  std::vector<double> of_fixed;
  for (int32_t layer = 0; layer < kLayers; ++layer) {
    for (int32_t head = 0; head < kHeads; ++head) {
      if (IsFixed(layer, head)) {
        of_fixed.push_back(masses[static_cast<size_t>(layer)][static_cast<size_t>(head)]);
      }
    }
  }
  std::sort(of_fixed.begin(), of_fixed.end());
  ASSERT_GE(of_fixed.size(), 4u);
  size_t num_cuts = 0;
  for (size_t cut = 0; cut <= of_fixed.size(); ++cut) {
    const double below = cut == 0 ? of_fixed.front() - 0.02 : of_fixed[cut - 1];
    const double above = cut == of_fixed.size() ? of_fixed.back() + 0.02 : of_fixed[cut];
    if (above - below < 1e-4) {
      continue;  // rounding may decide
    }
    const auto theta = static_cast<int64_t>((below + above) / 2 * kPpm) + 30'000;
    if (theta >= kPpm) {
      continue;
    }
    ++num_cuts;
    SCOPED_TRACE(theta);
    const Checked checked = PrefillChecked(theta);
    EXPECT_EQ(checked.receipt.escalated_heads, static_cast<int32_t>(cut));
    EXPECT_EQ(checked.receipt.reasons,
              cut == 0 ? std::vector<std::string>{} : std::vector<std::string>{"head_check"});
    for (int32_t layer = 0; layer < kLayers; ++layer) {
      for (int32_t head = 0; head < kHeads; ++head) {
        const auto l = static_cast<size_t>(layer);
        const auto h = static_cast<size_t>(head);
        const std::vector<int32_t>& before = plain.kept[l][h];
        const std::vector<int32_t>& after = checked.kept[l][h];
        EXPECT_TRUE(std::includes(after.begin(), after.end(), before.begin(), before.end()));
        if (IsFixed(layer, head) && masses[l][h] < (below + above) / 2) {
          EXPECT_EQ(after.size(), std::max<size_t>(45, before.size() + 3)) << layer << "." << head;
        } else {
          EXPECT_EQ(after, before) << layer << "." << head;
        }
      }
    }
  }
  EXPECT_GE(num_cuts, of_fixed.size());
}

TEST_F(HeadCheckTest, UnderModeRecoveryHeavyHeadsKeepEverything) {
  spec_.mode = KvMode::kRecovery;
  spec_.retention_ppm = kPpm;
  const Checked plain = Prefill(spec_);
  const std::vector<std::vector<double>> masses = Masses(plain.kept);
  const Checked checked = PrefillChecked(map_.profile.theta_ppm);
  int32_t climbed = 0;
  for (size_t layer = 0; layer < kLayers; ++layer) {
    for (size_t head = 0; head < kHeads; ++head) {
      if (map_.head(static_cast<int32_t>(layer), static_cast<int32_t>(head)).type !=
          HeadType::kHeavy) {
        continue;
      }
      const bool too_little = masses[layer][head] < 0.92;
      EXPECT_EQ(checked.kept[layer][head].size() == kTokens, too_little);
      climbed += too_little ? 1 : 0;
    }
  }
  EXPECT_GT(climbed, 0);
}

// Whatever the check finds, it finds of quotas, which no budget changes: a head that climbs at one
// retention climbs at every larger one that leaves its quota whole.
TEST_F(HeadCheckTest, KeptSetsNestInTheRetention) {
  for (const int64_t theta : {300'000, 600'000, 950'000}) {
    for (const int64_t tau : {kPpm, int64_t{500'000}}) {
      for (const KvScope scope : {KvScope::kModel, KvScope::kLayer}) {
        SCOPED_TRACE(
            fmt::format("theta {}, tau {}, scope {}", theta, tau, static_cast<int>(scope)));
        spec_.tsp_ppm = tau;
        spec_.scope = scope;
        Checked last;
        int32_t most_climbed = 0;
        for (int64_t rho = 50'000; rho <= kPpm; rho += 50'000) {
          spec_.retention_ppm = rho;
          Checked checked = PrefillChecked(theta);
          most_climbed = std::max(most_climbed, checked.receipt.escalated_heads);
          for (size_t layer = 0; layer < last.kept.size(); ++layer) {
            for (size_t head = 0; head < last.kept[layer].size(); ++head) {
              const std::vector<int32_t>& small = last.kept[layer][head];
              const std::vector<int32_t>& large = checked.kept[layer][head];
              ASSERT_TRUE(std::includes(large.begin(), large.end(), small.begin(), small.end()))
                  << "rho " << rho << ", layer " << layer << ", head " << head;
            }
          }
          last = std::move(checked);
        }
        EXPECT_GT(most_climbed, 0);
      }
    }
  }
}

TEST_F(HeadCheckTest, IsRefusedTogetherWithStrict) {
  spec_.head_check = spec_.strict = true;
  EXPECT_FALSE(fixture_.policies().Find("adaptive")->Validate(spec_).ok());
}

}  // namespace
}  // namespace headroom::engine
