// Tokens -> text deltas, stop strings and the finish reason of one sequence.
//
// Text that could still turn out to be the start of a stop string is held back; a stop string may
// span tokens. What was emitted is never taken back.
//
// Of several stop strings the one that is complete first (reading byte by byte) ends the text; of
// two that end at the same byte, the longer. How tokens split the text therefore does not matter.
// The first min_new_tokens tokens end nothing: a stop string that is complete by then is passed
// over.
#pragma once

#include <cstddef>
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
  // Takes the next generated token. EOS and stop tokens end with kStop and add no text; an EOS is
  // named in no field, a stop token in stop_token. The last token that max_new_tokens allows ends
  // with kLength unless a stop ends it.
  Result Add(int32_t token);

  // What is held back, for a sequence that ends for another reason than Add's result.
  std::string Flush();

  int32_t num_tokens() const { return num_tokens_; }

 private:
  bool TakeStop(Result& result);
  std::string TakeSafeText();

  const models::Tokenizer* tokenizer_;
  const StopCriteria& stop_;
  std::optional<models::IncrementalDetokenizer> detokenizer_;
  std::string held_;   // decoded but not emitted
  size_t passed_ = 0;  // bytes of held_ that came before stops are taken
  int32_t num_tokens_ = 0;
};

}  // namespace headroom::engine
