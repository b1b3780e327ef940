#include "engine/kv/head_map.h"

#include <algorithm>

namespace headroom::engine {
namespace {

constexpr int64_t kOne = 1'000'000;
constexpr std::array<const char*, kNumHeadTypes> kTypeNames = {"special", "punct", "local", "heavy",
                                                               "dense"};

}  // namespace

const char* HeadTypeName(HeadType type) { return kTypeNames[static_cast<size_t>(type)]; }

std::optional<HeadType> FindHeadType(std::string_view name) {
  const auto place = std::find(kTypeNames.begin(), kTypeNames.end(), name);
  if (place == kTypeNames.end()) {
    return std::nullopt;
  }
  return static_cast<HeadType>(place - kTypeNames.begin());
}

const SpendPlan* HeadMap::FindSpend(const std::string& prefer) const {
  for (const SpendPlan& plan : spend) {
    if (plan.prefer == prefer) {
      return &plan;
    }
  }
  return nullptr;
}

std::string PpmText(int64_t ppm) {
  const uint64_t size =
      ppm < 0 ? uint64_t{0} - static_cast<uint64_t>(ppm) : static_cast<uint64_t>(ppm);
  std::string text =
      fmt::format("{}{}.{:06d}", ppm < 0 ? "-" : "", size / uint64_t{kOne}, size % uint64_t{kOne});
  while (text.back() == '0') {
    text.pop_back();
  }
  if (text.back() == '.') {
    text.pop_back();
  }
  return text;
}

std::array<int32_t, kNumHeadTypes> CountHeadTypes(const HeadMap& map) {
  std::array<int32_t, kNumHeadTypes> counts = {};
  for (const HeadEntry& head : map.heads) {
    ++counts[static_cast<size_t>(head.type)];
  }
  return counts;
}

}  // namespace headroom::engine
