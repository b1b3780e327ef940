// Settings of every policy for short prompts: what tests that must hold for all of them run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/kv/budget.h"

namespace headroom::testing {

struct PolicyCase {
  std::string name;
  engine::KvPolicySpec spec;
};

// Every policy that the fixtures know, "ragged" among them, with and without its options. Each
// drops something of a prompt of 60 tokens.
std::vector<PolicyCase> MakePolicyCases();

// Those of a budget, told to keep everything: all must equal "full". Not "ragged", which has sets
// of its own whatever the ratios.
std::vector<PolicyCase> MakeKeepAllCases();

// Seeded classes: a tenth of the tokens is special, a fifth punctuation.
std::shared_ptr<const std::vector<engine::TokenClass>> RandomClasses(int32_t count, uint64_t seed);

}  // namespace headroom::testing
