// Matching the tensors of a file with those that an architecture wants.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "models/named_tensor.h"

namespace headroom::models {

// Which names a file gives its tensors.
enum class TensorNaming : uint8_t { kGguf, kHuggingFace };

// One tensor that an architecture knows.
struct TensorRule {
  std::string name;
  int64_t rows = 0;  // 0: the tensor is a vector of `cols`
  int64_t cols = 0;
  TensorView* target = nullptr;  // where the view goes; null: known, but not needed
  bool required = true;
};

// Fills every target. The error lists all missing, extra and misshaped tensors of the file
// together. Vectors must be f32, f16 or bf16.
Status AssignTensors(const std::vector<TensorRule>& rules, const std::vector<NamedTensor>& tensors,
                     const std::string& path);

}  // namespace headroom::models
