#include "base/philox.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>

namespace headroom {
namespace {

struct KnownAnswer {
  uint64_t key;
  uint64_t stream;
  uint64_t counter;
  std::array<uint32_t, 4> words;
};

// Random123's published vectors for philox4x32-10 (DEShawResearch/random123: tests/kat_vectors).
TEST(PhiloxTest, MatchesThePublishedKnownAnswers) {
  const KnownAnswer answers[] = {
      {0, 0, 0, {0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}},
      {~uint64_t{0},
       ~uint64_t{0},
       ~uint64_t{0},
       {0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}},
      {0x299f31d0a4093822u,
       0x0370734413198a2eu,
       0x85a308d3243f6a88u,
       {0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}},
  };
  for (const KnownAnswer& answer : answers) {
    EXPECT_EQ(Philox(answer.key, answer.stream).Block(answer.counter), answer.words);
  }
}

TEST(PhiloxTest, UniformIsTheTop53BitsOfItsBlock) {
  const Philox philox(7, 3);
  double sum = 0;
  for (uint64_t counter = 0; counter < 1000; ++counter) {
    const std::array<uint32_t, 4> words = philox.Block(counter);
    const uint64_t bits = (static_cast<uint64_t>(words[0]) << 32 | words[1]) >> 11;
    const double uniform = philox.Uniform(counter);
    EXPECT_EQ(uniform, static_cast<double>(bits) / 9007199254740992.0);
    EXPECT_GE(uniform, 0.0);
    EXPECT_LT(uniform, 1.0);
    sum += uniform;
  }
  // Mean of 1000 uniforms: standard deviation 0.0091; five of them.
  EXPECT_NEAR(sum / 1000, 0.5, 0.046);
}

TEST(PhiloxTest, KeyAndStreamBothChangeTheNumbers) {
  EXPECT_NE(Philox(1, 0).Block(0), Philox(2, 0).Block(0));
  EXPECT_NE(Philox(1, 0).Block(0), Philox(1, 1).Block(0));
}

}  // namespace
}  // namespace headroom
