// The input is the text of a head map. Whatever it holds: no crash, an error is one line of bounded
// size, and a map that is read is valid, writes itself back to the same map, and no cut of it is
// one. The first byte 0xff asks for a known good map with the rest of the input laid over it, so
// that the fuzzer gets behind the hash: the changed map is written anew and read.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>

#include "base/check.h"
#include "engine/kv/head_map.h"
#include "tests/support/head_maps.h"

namespace headroom::engine {
namespace {

constexpr size_t kMaxMessageBytes = 4096;

void CheckRead(const std::string& text) {
  const StatusOr<HeadMap> map = ParseHeadMap(text);
  if (!map.ok()) {
    const std::string message = StatusMessage(map.status());
    HEADROOM_CHECK(!message.empty() && message.size() <= kMaxMessageBytes);
    HEADROOM_CHECK(map.status().code() == StatusCode::kInvalidArgument);
    return;
  }
  HEADROOM_CHECK(ValidateHeadMap(*map).ok());
  const std::string canonical = WriteHeadMap(*map);
  const StatusOr<HeadMap> again = ParseHeadMap(canonical);
  HEADROOM_CHECK(again.ok() && again->hash == map->hash);
  HEADROOM_CHECK(WriteHeadMap(*again) == canonical);
  HEADROOM_CHECK(!ParseHeadMap(text.substr(0, text.size() / 2)).ok());
}

// Numbers and texts of a good map changed by the input: 9 bytes choose a member and its value.
void ChangeMap(const uint8_t* data, size_t size, HeadMap* map) {
  for (size_t at = 0; at + 9 <= size; at += 9) {
    int64_t value = 0;
    std::memcpy(&value, data + at + 1, sizeof(value));
    HeadEntry& head = map->heads[data[at] % map->heads.size()];
    int64_t* const members[] = {&head.confidence_ppm,
                                &head.margin_ppm,
                                &head.budget_tokens,
                                &head.budget_ppm,
                                &head.weight_ppm,
                                &head.copy_ppm,
                                &head.masses_ppm[1],
                                &head.recovery[1].value_error_ppm,
                                &head.curve_local[1].size,
                                &map->profile.theta_ppm,
                                &map->tsp.overlap_ppm[0],
                                &map->tsp.candidates[0].delta_nll_ppm,
                                &map->spend[1].points[0].dense_share_ppm,
                                &map->spend[1].points[1].retention_ppm,
                                &map->validation.rows[0].kl_ppm};
    *members[(data[at] >> 3) % std::size(members)] = value;
    if (value % 5 == 0) {
      map->model.name.assign(reinterpret_cast<const char*>(data), std::min<size_t>(size, 300));
    }
  }
}

void Run(const uint8_t* data, size_t size) {
  if (size > 0 && data[0] == 0xff) {
    HeadMap map = headroom::testing::MakeHeadMap(2, 2, 2);
    ChangeMap(data + 1, size - 1, &map);
    if (ValidateHeadMap(map).ok()) {
      const std::string text = WriteHeadMap(map);
      HEADROOM_CHECK(ParseHeadMap(text).ok());
      CheckRead(text);
    }
    return;
  }
  CheckRead(std::string(data, data + size));
}

}  // namespace
}  // namespace headroom::engine

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  headroom::engine::Run(data, size);
  return 0;
}
