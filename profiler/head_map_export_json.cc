#include <algorithm>
#include <nlohmann/json.hpp>

#include "profiler/head_map_export.h"

namespace headroom::profiler {
namespace {

using Json = nlohmann::ordered_json;
using engine::HeadEntry;
using engine::HeadMap;
using engine::HeadType;

constexpr int64_t kOne = 1'000'000;

int64_t GatePpm(const HeadEntry& head) {
  const int64_t probe = head.probe_ppm() * 49 / 100;
  switch (head.type) {
    case HeadType::kDense:
      return kOne;
    case HeadType::kHeavy:
      return kOne / 2 + probe;
    default:
      return probe;
  }
}

Json Header(const HeadMap& map) {
  const StreamingSizes sizes = StreamingSizesOf(map);
  return {{"model_name", map.model.name},
          {"sink_size", sizes.sink_size},
          {"recent_size", sizes.recent_size},
          {"head_map", map.hash},
          {"seed", map.profile.seed}};
}

std::string Text(const Json& json) {
  return json.dump(1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

StreamingSizes StreamingSizesOf(const HeadMap& map) {
  int32_t recent = map.profile.recent_tokens;
  for (const HeadEntry& head : map.heads) {
    if (head.type < HeadType::kHeavy) {
      recent = std::max(recent, head.window);
    }
  }
  return {.sink_size = map.profile.sink_tokens, .recent_size = recent};
}

std::string DuoScores(const HeadMap& map) {
  std::string text;
  for (int32_t layer = 0; layer < map.model.num_layers; ++layer) {
    for (int32_t g = 0; g < map.model.num_kv_heads; ++g) {
      text += fmt::format("{}{}", g > 0 ? "\t" : "", engine::PpmText(GatePpm(map.head(layer, g))));
    }
    text += "\n";
  }
  return text;
}

std::string DuoConfig(const HeadMap& map) { return Text(Header(map)); }

std::string KvpressPattern(const HeadMap& map) {
  Json json = Header(map);
  Json scores = Json::array();
  for (int32_t layer = 0; layer < map.model.num_layers; ++layer) {
    Json line = Json::array();
    for (int32_t g = 0; g < map.model.num_kv_heads; ++g) {
      line.push_back(static_cast<double>(GatePpm(map.head(layer, g))) / 1e6);
    }
    scores.push_back(std::move(line));
  }
  json["head_scores"] = std::move(scores);
  return Text(json);
}

}  // namespace headroom::profiler
