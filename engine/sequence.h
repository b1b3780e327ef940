// One request inside the engine: from its arrival to the last terminal event of its choices. Plain
// data of the engine thread; the engine alone changes it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/capacity.h"
#include "engine/kv/kv_replay.h"
#include "engine/output_assembler.h"
#include "engine/request.h"
#include "engine/sampler.h"

namespace headroom::engine {

// One of the answers to a request. All of them share its prefill.
struct Choice {
  Choice(int32_t its_index, const Request& request, const models::Tokenizer* tokenizer)
      : index(its_index), sampling(request.sampling), assembler(tokenizer, request.stop) {
    sampling.choice += static_cast<uint32_t>(its_index);
  }

  int32_t index = 0;
  SamplingParams sampling;  // the request's, with this choice's Philox stream
  TokenHistory history;     // filled only under penalties
  OutputAssembler assembler;
  int32_t handle = -1;             // of the KvCache, while it decodes
  std::vector<int32_t> generated;  // sampled so far; the last one has not been fed
  bool ended = false;              // its terminal event was emitted
  // After a preemption, until its prefill has run again.
  std::shared_ptr<const KvReplay> replay;

  int32_t num_generated() const { return static_cast<int32_t>(generated.size()); }
};

struct Sequence {
  enum class State : uint8_t { kWaiting, kPrefill, kDecode };

  Sequence(std::shared_ptr<const Request> submitted, const Capacity& needed,
           const models::Tokenizer* tokenizer)
      : request(std::move(submitted)), capacity(needed) {
    receipt.policy = request->kv.policy;
    // One that is refused for having no choice still gets its terminal event.
    num_live = std::max(1, request->num_choices);
    for (int32_t index = 0; index < num_live; ++index) {
      choices.emplace_back(index, *request, tokenizer);
    }
  }

  std::shared_ptr<const Request> request;
  Capacity capacity;  // set at submission; its steady pages become exact when prefill ends
  State state = State::kWaiting;
  std::vector<Choice> choices;
  int32_t num_live = 0;    // choices that have not ended
  bool preempted = false;  // at least once: it was admitted, then put back into the queue

  // While prefilling.
  int32_t handle = -1;  // of the KvCache; the choices' own while decoding
  int32_t phase = 0;
  int64_t phase_rows_done = 0;  // rows of `phase` that ran
  int64_t rows_done = 0;        // rows of all phases that ran
  // Over all its runs.
  int64_t prompt_rows_read = 0;  // most rows of phase 0
  int64_t rows_told = 0;         // most rows_done of an event

  // Set when prefill ends.
  KvReceipt receipt;
  std::optional<KvTrace> trace;  // only under trace_kv

  // The KvCache's, of what runs: of the prefill, or of the choices that decode.
  std::vector<int32_t> handles() const {
    std::vector<int32_t> open;
    if (handle >= 0) {
      open.push_back(handle);
    }
    for (const Choice& choice : choices) {
      if (choice.handle >= 0) {
        open.push_back(choice.handle);
      }
    }
    return open;
  }

  int64_t reserved_pages() const {
    return state == State::kDecode ? capacity.SteadyPages(num_live) : capacity.peak_pages;
  }
};

}  // namespace headroom::engine
