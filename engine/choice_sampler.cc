#include "engine/choice_sampler.h"

#include <utility>

namespace headroom::engine {

bool CountsGenerated(const SamplingParams& params) {
  return params.presence_penalty != 0.0f || params.frequency_penalty != 0.0f ||
         params.repetition_penalty != 1.0f;
}

std::span<const uint64_t> ChoiceSampler::AllowedTokens(const StopCriteria& stop,
                                                       int32_t num_generated) {
  if (num_generated >= stop.min_new_tokens) {
    return {};
  }
  allowed_.assign((static_cast<size_t>(vocab_size_) + 63) / 64, ~uint64_t{0});
  const auto forbid = [&](const std::vector<int32_t>& ids) {
    for (const int32_t id : ids) {
      if (id >= 0 && id < vocab_size_) {
        allowed_[static_cast<size_t>(id) / 64] &= ~(uint64_t{1} << (id % 64));
      }
    }
  };
  forbid(stop.eos_token_ids);
  forbid(stop.stop_token_ids);
  return allowed_;
}

RequestEvent ChoiceSampler::Next(const StopCriteria& stop, std::span<const float> logits,
                                 Choice& choice) {
  SampledToken token =
      sampler_.Sample(logits, choice.sampling, choice.history, choice.generated.size(),
                      AllowedTokens(stop, choice.num_generated()));
  if (CountsGenerated(choice.sampling)) {
    choice.history.AddGenerated(token.token);
  }
  choice.generated.push_back(token.token);
  OutputAssembler::Result result = choice.assembler.Add(token.token);
  RequestEvent event;
  event.tokens.push_back(std::move(token));
  event.text = std::move(result.text);
  if (result.finish) {
    event.kind = RequestEvent::Kind::kFinished;
    event.finish_reason = *result.finish;
    event.stop_string = std::move(result.stop_string);
    event.stop_token = result.stop_token;
  }
  return event;
}

}  // namespace headroom::engine
