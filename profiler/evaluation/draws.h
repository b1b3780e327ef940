// Random draws that are a function of a seed and a name: what generated prompts are made with.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "base/philox.h"

namespace headroom::profiler {

class Draws {
 public:
  Draws(uint64_t seed, std::string_view name) : random_(seed, Hash(name)) {}

  // Uniform in [0, count), count >= 1.
  int64_t Below(int64_t count) {
    return static_cast<int64_t>(Uniform() * static_cast<double>(count));
  }
  // Uniform in [0, 1).
  double Uniform() { return random_.Uniform(counter_++); }

  // Fisher-Yates.
  template <typename T>
  void Shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i > 1; --i) {
      std::swap(items[i - 1], items[static_cast<size_t>(Below(static_cast<int64_t>(i)))]);
    }
  }

 private:
  // FNV-1a, 64 bits: the same on every machine, unlike std::hash.
  static uint64_t Hash(std::string_view name) {
    uint64_t hash = 14695981039346656037ull;
    for (const char c : name) {
      hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
    }
    return hash;
  }

  Philox random_;
  uint64_t counter_ = 0;
};

}  // namespace headroom::profiler
