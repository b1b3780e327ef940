// Ranges of every sampling and stop field, and their defaults: request > the model's own
// generation_config > OpenAI's.
#pragma once

#include <optional>

#include "engine/request.h"
#include "models/loaded_model.h"
#include "server/api_error.h"
#include "server/generation_request.h"

namespace headroom::server {

struct SamplingLimits {
  int64_t vocab_size = 0;
  int64_t max_choices = 8;  // of `n`
};

// Fills `sampling` (but for seed and choice) and `stop` (but for max_new_tokens and EOS). The first
// fault is the answer, with `param`.
std::optional<ApiError> ValidateSampling(const GenerationRequest& request,
                                         const models::GenerationDefaults& defaults,
                                         const SamplingLimits& limits,
                                         engine::SamplingParams* sampling,
                                         engine::StopCriteria* stop);

}  // namespace headroom::server
