// Does a head map belong to this model? Hashes decide, never names.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/kv/head_map.h"
#include "models/loaded_model.h"

namespace headroom::engine {

// Which tokens are special and which punctuation, by rule: engine/token_classes.h.
inline constexpr const char* kPunctRule = "unicode-P+newline/1";

// What a map says of the model that it was made on; what `profile` writes and CheckBinding
// compares. Reads the attention weights once, with `num_threads` >= 1.
struct ModelIdentity {
  MapModel model;
  MapTokenizer tokenizer;
};
ModelIdentity IdentifyModel(const models::LoadedModel& loaded, int num_threads);

enum class HeadMapCheck : uint8_t { kStrict, kWarn };
std::optional<HeadMapCheck> FindHeadMapCheck(std::string_view name);  // "strict", "warn"

struct HeadMapBinding {
  std::vector<std::string> warnings;  // each for one log line
  // The weights differ from all that the map knows: FastGen's test on the held-out rows of each
  // request is on (kv_head_check), and cheap types that the profile was not sure of are not used.
  bool other_weights = false;
};

// What holds for a map and a model, after head-profiling's table of failures:
//   shapes or architecture, vocabulary, special or punctuation ids differ: refused.
//   weights differ and are not among `bound`: refused; kWarn: other_weights and a warning.
//   chat template differs, a bound sibling, a map that is not validated: a warning.
//   a map whose validation failed: refused; kWarn: a warning.
// FailedPrecondition with what was got and wanted, and what to do about it.
StatusOr<HeadMapBinding> CheckBinding(const HeadMap& map, const ModelIdentity& identity,
                                      HeadMapCheck check);

// The map that `adaptive` runs: with other_weights special, punct and local heads of a confidence
// below 0.95 count as heavy. `hash` stays that of the file.
std::shared_ptr<const HeadMap> BindHeadMap(HeadMap map, const HeadMapBinding& binding);

// Mean tokens of the profile's prompts, of the domain with the longest; 0: not known.
int64_t ProfiledTokens(const HeadMap& map);

// A copy that also accepts these weights; `hash` is set when it is written.
HeadMap AddBound(HeadMap map, const std::string& weights_hash);

}  // namespace headroom::engine
