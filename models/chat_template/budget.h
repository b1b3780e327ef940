// What one rendering may spend: steps, memory, output, nesting, time.
//
// Every operation that can take long charges before it works, so a hostile template or message ends
// in ResourceExhausted, not in a stuck thread. Memory counts all that was ever made, freed or not:
// that bounds copying as well as holding.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/status.h"
#include "models/chat_template/chat_template.h"
#include "models/chat_template/value_objects.h"

namespace headroom::models::jinja {

// Lists and dicts in one another, in values that the template makes or the request brings.
inline constexpr int32_t kMaxValueDepth = 200;

class Budget {
 public:
  Budget(const TemplateLimits& limits, const Clock& clock)
      : limits_(limits), clock_(clock), start_ns_(clock.NowNs()) {}

  Status Step(int64_t count = 1);
  Status Allocate(int64_t bytes);  // also steps, one per 64 bytes
  Status Output(int64_t bytes);
  Status Enter();  // one level of nesting; Leave must follow, also after an error
  void Leave() { --depth_; }

 private:
  Status CheckTime();

  const TemplateLimits& limits_;
  const Clock& clock_;
  int64_t start_ns_;
  int64_t steps_ = 0;
  int64_t next_time_check_ = 0;  // in steps
  int64_t value_bytes_ = 0;
  int64_t output_bytes_ = 0;
  int32_t depth_ = 0;
};

// Counts a level of nesting for as long as it lives; `status` says whether it was allowed.
class DepthGuard {
 public:
  explicit DepthGuard(Budget& budget) : budget_(budget), status_(budget.Enter()) {}
  ~DepthGuard() { budget_.Leave(); }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;
  const Status& status() const { return status_; }

 private:
  Budget& budget_;
  Status status_;
};

// Values made while rendering: charged, and refused where nesting goes too deep.
StatusOr<Value> NewText(Budget& budget, ProvenancedText text, bool markup = false);
StatusOr<Value> NewList(Budget& budget, ValueList items);
StatusOr<Value> NewTuple(Budget& budget, ValueList items);
StatusOr<Value> NewDict(Budget& budget, ValueDict entries, bool template_keys);

// Namespaces, macros and methods live with their scope and may not be put into containers.
Status CheckStorable(const Value& value);

}  // namespace headroom::models::jinja
