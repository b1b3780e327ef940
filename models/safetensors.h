// safetensors files and the index of a model that is split over several.
//
// The rules are the format's own (huggingface/safetensors README and validate()): a header of at
// most 100,000,000 bytes that begins with '{', no duplicate keys, data ranges that follow one
// another from 0 without hole or overlap, agree with shape and dtype and end at the end of file.
// Stricter: dtypes F32, F16, BF16, at most 4 dimensions, none of them 0, no unknown fields.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "models/named_tensor.h"

namespace headroom::models {

// The tensors of one file, by place in it. The views point into `bytes` and may be unaligned;
// `path` is for errors.
StatusOr<std::vector<NamedTensor>> ParseSafetensors(std::span<const uint8_t> bytes,
                                                    const std::string& path);

// model.safetensors.index.json: tensor name -> file name, which is a plain name without any path.
StatusOr<std::map<std::string, std::string>> ParseSafetensorsIndex(std::string_view text,
                                                                   const std::string& path);

// The header's JSON alone (safetensors_json.cc): name, shape, dtype, and data range relative to
// the data section, unchecked against one another; sorted by where they begin.
struct SafetensorsEntry {
  NamedTensor tensor;
  uint64_t begin = 0;
  uint64_t end = 0;
};
StatusOr<std::vector<SafetensorsEntry>> ParseSafetensorsHeader(std::string_view text,
                                                               const std::string& path);

}  // namespace headroom::models
