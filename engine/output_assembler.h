// Tokens -> text deltas, stop strings and the finish reason of one sequence.
//
// Text that could still turn out to be the start of a stop string is held back; a stop string may
// span tokens. What was emitted is never taken back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/request.h"
#include "models/tokenizer/tokenizer.h"

namespace headroom::engine {

class OutputAssembler {
 public:
  // `tokenizer` may be null (ids only); it and `stop` outlive the assembler.
  OutputAssembler(const models::Tokenizer* tokenizer, const StopCriteria& stop);

  struct Result {
    std::string text;  // to emit now
    std::optional<FinishReason> finish;
    std::optional<std::string> stop_string;
    std::optional<int32_t> stop_token;
  };
  // Takes the next generated token. EOS and stop tokens end with kStop and add no text.
  Result Add(int32_t token);

  // What is held back, for a sequence that ends for another reason than Add's result.
  std::string Flush();

  int32_t num_tokens() const { return num_tokens_; }

 private:
  std::string TakeSafeText();

  const models::Tokenizer* tokenizer_;
  const StopCriteria& stop_;
  std::optional<models::IncrementalDetokenizer> detokenizer_;
  std::string held_;  // decoded but not emitted
  int32_t num_tokens_ = 0;
};

}  // namespace headroom::engine
