// One request inside the engine: from its arrival to its terminal event. Plain data of the engine
// thread; the engine alone changes it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "engine/capacity.h"
#include "engine/output_assembler.h"
#include "engine/request.h"
#include "engine/sampler.h"

namespace headroom::engine {

struct Sequence {
  enum class State : uint8_t { kWaiting, kPrefill, kDecode };

  Sequence(std::shared_ptr<const Request> submitted, const Capacity& needed,
           const models::Tokenizer* tokenizer)
      : request(std::move(submitted)), capacity(needed), assembler(tokenizer, request->stop) {}

  std::shared_ptr<const Request> request;
  Capacity capacity;  // set at submission
  State state = State::kWaiting;

  // Set at admission.
  int32_t handle = -1;  // of the KvCache; -1 while waiting

  // While prefilling.
  int32_t phase = 0;
  int64_t phase_rows_done = 0;  // rows of `phase` that ran
  int64_t rows_done = 0;        // rows of all phases that ran

  // Set when prefill ends.
  KvReceipt receipt;
  std::optional<KvTrace> trace;  // only under trace_kv

  // While decoding.
  TokenHistory history;  // filled only under penalties
  OutputAssembler assembler;
  int32_t last_token = -1;  // sampled, not yet fed
  int32_t num_generated = 0;

  int64_t reserved_pages() const {
    return state == State::kDecode ? capacity.steady_pages : capacity.peak_pages;
  }
};

}  // namespace headroom::engine
