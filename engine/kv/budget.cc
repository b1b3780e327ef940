#include "engine/kv/budget.h"

#include <algorithm>

namespace headroom::engine {
namespace {

int64_t Limit(int64_t ppm, const std::optional<int64_t>& tokens, int64_t num_tokens) {
  const int64_t share = ScalePpm(ppm, num_tokens);
  return tokens.has_value() ? std::min(share, *tokens) : share;
}

}  // namespace

int64_t RetentionEntries(const KvPolicySpec& spec, int64_t num_tokens) {
  return Limit(spec.retention_ppm, spec.retention_tokens, num_tokens);
}

int64_t TspRows(const KvPolicySpec& spec, int64_t num_tokens) {
  return Limit(spec.tsp_ppm, spec.tsp_tokens, num_tokens);
}

bool RetentionIsShort(const KvPolicySpec& spec, int64_t num_tokens) {
  return num_tokens < spec.min_prompt && RetentionEntries(spec, num_tokens) < num_tokens;
}

bool TspIsShort(const KvPolicySpec& spec, int64_t num_tokens) {
  return num_tokens < spec.tsp_min_prompt && TspRows(spec, num_tokens) < num_tokens;
}

bool RetentionApplies(const KvPolicySpec& spec, int64_t num_tokens) {
  return num_tokens >= spec.min_prompt && RetentionEntries(spec, num_tokens) < num_tokens;
}

bool TspApplies(const KvPolicySpec& spec, int64_t num_tokens) {
  return num_tokens >= spec.tsp_min_prompt && TspRows(spec, num_tokens) < num_tokens;
}

int32_t WindowRows(const KvPolicySpec& spec, const PromptInfo& prompt) {
  const int64_t end = spec.window_raw ? prompt.num_tokens : prompt.content_end;
  const int64_t suffix = prompt.num_tokens - std::clamp<int64_t>(end, 0, prompt.num_tokens);
  return static_cast<int32_t>(std::min<int64_t>(prompt.num_tokens, spec.window + suffix));
}

int32_t SinkRows(const KvPolicySpec& spec, const PromptInfo& prompt) {
  return std::min(spec.sink_tokens, prompt.num_tokens);
}

namespace {

int64_t AppliedPpm(bool applies, int64_t count, int64_t ppm, int64_t num_tokens) {
  if (!applies) {
    return kPpm;
  }
  return count < ScalePpm(ppm, num_tokens) ? count * kPpm / num_tokens : ppm;
}

}  // namespace

int64_t AppliedRetentionPpm(const KvPolicySpec& spec, int64_t num_tokens) {
  return AppliedPpm(RetentionApplies(spec, num_tokens), RetentionEntries(spec, num_tokens),
                    spec.retention_ppm, num_tokens);
}

int64_t AppliedTspPpm(const KvPolicySpec& spec, int64_t num_tokens) {
  return AppliedPpm(TspApplies(spec, num_tokens), TspRows(spec, num_tokens), spec.tsp_ppm,
                    num_tokens);
}

}  // namespace headroom::engine
