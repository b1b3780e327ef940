#include "models/chat_template/budget.h"

#include "models/chat_template/provenance.h"

namespace headroom::models::jinja {

namespace {

constexpr int64_t kStepsPerTimeCheck = 1024;
constexpr int64_t kBytesPerStep = 64;
constexpr int64_t kNsPerMs = 1'000'000;

Status CheckValueDepth(const Value& value) {
  if (value.depth() <= kMaxValueDepth) {
    return OkStatus();
  }
  return ResourceExhausted("lists and dicts are nested more than {} deep", kMaxValueDepth);
}

}  // namespace

Status Budget::CheckTime() {
  next_time_check_ = steps_ + kStepsPerTimeCheck;
  if ((clock_.NowNs() - start_ns_) / kNsPerMs <= limits_.max_time_ms) {
    return OkStatus();
  }
  return ResourceExhausted("rendering took more than {} ms", limits_.max_time_ms);
}

Status Budget::Step(int64_t count) {
  if (count > limits_.max_steps - steps_) {
    return ResourceExhausted("rendering took more than {} steps", limits_.max_steps);
  }
  steps_ += count;
  return steps_ >= next_time_check_ ? CheckTime() : OkStatus();
}

Status Budget::Allocate(int64_t bytes) {
  if (bytes > limits_.max_value_bytes - value_bytes_) {
    return ResourceExhausted("the template's values took more than {} bytes",
                             limits_.max_value_bytes);
  }
  value_bytes_ += bytes;
  return Step(bytes / kBytesPerStep);
}

Status Budget::Output(int64_t bytes) {
  if (bytes > limits_.max_output_bytes - output_bytes_) {
    return ResourceExhausted("the rendered text has more than {} bytes", limits_.max_output_bytes);
  }
  output_bytes_ += bytes;
  return Step(bytes / kBytesPerStep);
}

Status Budget::Enter() {
  if (++depth_ > limits_.max_depth) {
    return ResourceExhausted("expressions, blocks and macro calls are nested more than {} deep",
                             limits_.max_depth);
  }
  return OkStatus();
}

StatusOr<Value> NewText(Budget& budget, ProvenancedText text, bool markup) {
  HEADROOM_RETURN_IF_ERROR(budget.Allocate(MemoryBytes(text)));
  return MakeText(std::move(text), markup);
}

StatusOr<Value> NewList(Budget& budget, ValueList items) {
  HEADROOM_RETURN_IF_ERROR(
      budget.Allocate(static_cast<int64_t>(items.size() * sizeof(Value) + 64)));
  Value list = Value::List(std::move(items));
  HEADROOM_RETURN_IF_ERROR(CheckValueDepth(list));
  return list;
}

StatusOr<Value> NewTuple(Budget& budget, ValueList items) {
  HEADROOM_RETURN_IF_ERROR(
      budget.Allocate(static_cast<int64_t>(items.size() * sizeof(Value) + 64)));
  Value tuple = MakeTuple(std::move(items));
  HEADROOM_RETURN_IF_ERROR(CheckValueDepth(tuple));
  return tuple;
}

StatusOr<Value> NewDict(Budget& budget, ValueDict entries, bool template_keys) {
  int64_t bytes = 128;
  for (const auto& [key, value] : entries) {
    bytes += static_cast<int64_t>(key.size() + 2 * sizeof(ValueDict::value_type));
  }
  HEADROOM_RETURN_IF_ERROR(budget.Allocate(bytes));
  Value dict = MakeDict(std::move(entries), template_keys);
  HEADROOM_RETURN_IF_ERROR(CheckValueDepth(dict));
  return dict;
}

Status CheckStorable(const Value& value) {
  if (value.Is<std::shared_ptr<NamespaceObject>>()) {
    return InvalidArgument("a namespace or loop cannot be stored in another value");
  }
  if (value.Is<std::shared_ptr<const CallableObject>>()) {
    return InvalidArgument("a macro or method cannot be stored in another value");
  }
  return OkStatus();
}

}  // namespace headroom::models::jinja
