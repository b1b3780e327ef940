#include "server/sampling_validator.h"

#include <cmath>
#include <string>

namespace headroom::server {
namespace {

constexpr size_t kMaxStopStrings = 16;
constexpr size_t kMaxStopBytes = 256;
constexpr size_t kMaxBiases = 1024;

ApiError OutOfRangeError(const char* name, double got, const char* wanted) {
  return BadRequest("invalid_value", fmt::format("{}: got {}, wanted {}", name, got, wanted), name);
}

struct FloatField {
  const char* name;
  const std::optional<double>* value;
  double least;
  bool least_excluded;
  double most;
  const char* wanted;
  float* out;
};

std::optional<ApiError> CheckFloat(const FloatField& field) {
  if (!field.value->has_value()) {
    return std::nullopt;
  }
  const double value = **field.value;
  const bool above = field.least_excluded ? value > field.least : value >= field.least;
  if (!std::isfinite(value) || !above || value > field.most) {
    return OutOfRangeError(field.name, value, field.wanted);
  }
  *field.out = static_cast<float>(value);
  return std::nullopt;
}

std::optional<ApiError> CheckFloats(const GenerationRequest& request,
                                    engine::SamplingParams* sampling) {
  const FloatField fields[] = {
      {"temperature", &request.temperature, 0, false, 2, "0 to 2", &sampling->temperature},
      {"top_p", &request.top_p, 0, true, 1, "above 0, up to 1", &sampling->top_p},
      {"min_p", &request.min_p, 0, false, 1, "0 to 1", &sampling->min_p},
      {"presence_penalty", &request.presence_penalty, -2, false, 2, "-2 to 2",
       &sampling->presence_penalty},
      {"frequency_penalty", &request.frequency_penalty, -2, false, 2, "-2 to 2",
       &sampling->frequency_penalty},
      {"repetition_penalty", &request.repetition_penalty, 0, true, 2, "above 0, up to 2",
       &sampling->repetition_penalty},
  };
  for (const FloatField& field : fields) {
    if (auto error = CheckFloat(field)) {
      return error;
    }
  }
  return std::nullopt;
}

std::optional<ApiError> CheckBias(const GenerationRequest& request, const SamplingLimits& limits,
                                  engine::SamplingParams* sampling) {
  if (request.logit_bias.size() > kMaxBiases) {
    return OutOfRangeError("logit_bias", static_cast<double>(request.logit_bias.size()),
                           "at most 1024 entries");
  }
  for (const auto& [token, bias] : request.logit_bias) {
    if (token < 0 || token >= limits.vocab_size) {
      return BadRequest("invalid_value",
                        fmt::format("logit_bias: token id {}, wanted 0 to {}", token,
                                    limits.vocab_size - 1),
                        "logit_bias");
    }
    if (!std::isfinite(bias) || bias < -100 || bias > 100) {
      return OutOfRangeError("logit_bias", bias, "-100 to 100");
    }
    sampling->logit_bias.emplace_back(static_cast<int32_t>(token), static_cast<float>(bias));
  }
  return std::nullopt;
}

std::optional<ApiError> CheckStops(const GenerationRequest& request, const SamplingLimits& limits,
                                   engine::StopCriteria* stop) {
  if (request.stop.size() > kMaxStopStrings) {
    return OutOfRangeError("stop", static_cast<double>(request.stop.size()),
                           "at most 16 strings");
  }
  for (const std::string& text : request.stop) {
    if (text.empty() || text.size() > kMaxStopBytes) {
      return BadRequest("invalid_value",
                        fmt::format("stop: a string of {} bytes, wanted 1 to 256", text.size()),
                        "stop");
    }
  }
  stop->stop_strings = request.stop;
  if (request.stop_token_ids.size() > kMaxBiases) {
    return OutOfRangeError("stop_token_ids", static_cast<double>(request.stop_token_ids.size()),
                           "at most 1024 ids");
  }
  for (int64_t token : request.stop_token_ids) {
    if (token < 0 || token >= limits.vocab_size) {
      return BadRequest("invalid_value",
                        fmt::format("stop_token_ids: token id {}, wanted 0 to {}", token,
                                    limits.vocab_size - 1),
                        "stop_token_ids");
    }
    stop->stop_token_ids.push_back(static_cast<int32_t>(token));
  }
  stop->include_stop_string = request.include_stop_str_in_output;
  return std::nullopt;
}

void TakeDefaults(const models::GenerationDefaults& defaults, engine::SamplingParams* sampling) {
  sampling->temperature = defaults.temperature.value_or(sampling->temperature);
  sampling->top_p = defaults.top_p.value_or(sampling->top_p);
  sampling->top_k = defaults.top_k.value_or(sampling->top_k);
  sampling->min_p = defaults.min_p.value_or(sampling->min_p);
  sampling->repetition_penalty =
      defaults.repetition_penalty.value_or(sampling->repetition_penalty);
}

}  // namespace

std::optional<ApiError> ValidateSampling(const GenerationRequest& request,
                                         const models::GenerationDefaults& defaults,
                                         const SamplingLimits& limits,
                                         engine::SamplingParams* sampling,
                                         engine::StopCriteria* stop) {
  TakeDefaults(defaults, sampling);
  if (auto error = CheckFloats(request, sampling)) {
    return error;
  }
  if (request.top_k.has_value()) {
    if (*request.top_k < -1) {
      return OutOfRangeError("top_k", static_cast<double>(*request.top_k),
                             "-1 or 0 (off) or a positive count");
    }
    sampling->top_k = static_cast<int32_t>(
        std::min<int64_t>(std::max<int64_t>(*request.top_k, 0), limits.vocab_size));
  }
  if (request.n.has_value() && (*request.n < 1 || *request.n > limits.max_choices)) {
    return BadRequest("invalid_value",
                      fmt::format("n: got {}, wanted 1 to {}", *request.n, limits.max_choices),
                      "n");
  }
  if (request.num_logprobs.has_value()) {
    if (*request.num_logprobs < 0 || *request.num_logprobs > 20) {
      const bool chat = !request.prompts.empty() &&
                        std::holds_alternative<ChatPrompt>(request.prompts.front());
      return OutOfRangeError(chat ? "top_logprobs" : "logprobs",
                             static_cast<double>(*request.num_logprobs), "0 to 20");
    }
    sampling->num_logprobs = static_cast<int32_t>(*request.num_logprobs);
  }
  if (request.max_tokens.has_value() && *request.max_tokens < 1) {
    return BadRequest("invalid_value",
                      fmt::format("max_tokens: got {}, wanted at least 1", *request.max_tokens),
                      "max_tokens");
  }
  if (request.min_tokens.has_value() &&
      (*request.min_tokens < 0 ||
       (request.max_tokens.has_value() && *request.min_tokens > *request.max_tokens))) {
    return OutOfRangeError("min_tokens", static_cast<double>(*request.min_tokens),
                           "0 to max_tokens");
  }
  stop->min_new_tokens =
      static_cast<int32_t>(std::min<int64_t>(request.min_tokens.value_or(0), INT32_MAX));
  if (request.timeout_s.has_value() &&
      (!std::isfinite(*request.timeout_s) || *request.timeout_s <= 0)) {
    return OutOfRangeError("timeout", *request.timeout_s, "above 0 seconds");
  }
  if (auto error = CheckBias(request, limits, sampling)) {
    return error;
  }
  return CheckStops(request, limits, stop);
}

}  // namespace headroom::server
