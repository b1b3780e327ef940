#include "server/budget_resolver.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "server/policy_options.h"

namespace headroom::server {
namespace {

using engine::kPpm;
using engine::KvDecode;
using engine::KvMode;
using engine::KvPolicySpec;
using engine::KvScope;

constexpr const char* kAdaptive = "adaptive";
constexpr int64_t kMaxProfiledShare = 4;  // longer prompts are out of the profile's range

// A field's name as the client wrote it in this source.
std::string ParamIn(const std::string& source, std::string_view name) {
  if (source != "header") {
    return std::string(name);
  }
  std::string param = "x-" + std::string(name);
  std::replace(param.begin(), param.end(), '_', '-');
  return param;
}

// Takes one field after the other: the first source that names it wins.
class FieldReader {
 public:
  FieldReader(const BudgetFields& body, const BudgetFields& header, ResolvedBudget* resolved)
      : body_(body), header_(header), resolved_(resolved) {}

  template <typename T>
  std::optional<T> Take(std::string_view name, std::optional<T> BudgetFields::*field) {
    const std::optional<T>& from_body = body_.*field;
    const std::optional<T>& from_header = header_.*field;
    if (from_body.has_value() && from_header.has_value() && *from_body != *from_header) {
      conflict_ = std::string(name);
    }
    source_ = from_body.has_value() ? "body" : from_header.has_value() ? "header" : "default";
    return from_body.has_value() ? from_body : from_header;
  }

  // The name as the client wrote it in the source that the last Take read from.
  std::string Param(std::string_view name) const { return ParamIn(source_, name); }

  // Records what was asked.
  void Note(std::string_view name, std::string value_text) {
    resolved_->asked.push_back({std::string(name), std::move(value_text), source_});
  }

  std::optional<ApiError> Integer(std::string_view name,
                                  std::optional<int64_t> BudgetFields::*field, int64_t least,
                                  int64_t most, std::optional<int64_t>* out) {
    *out = Take(name, field);
    if (!out->has_value()) {
      return std::nullopt;
    }
    if (**out < least || **out > most) {
      return BadRequest("invalid_budget",
                        fmt::format("{}: got {}, wanted {} to {}", Param(name), **out, least, most),
                        Param(name));
    }
    Note(name, fmt::format("{}", **out));
    return std::nullopt;
  }

  std::optional<ApiError> Ratio(std::string_view name, std::optional<int64_t> BudgetFields::*field,
                                std::optional<int64_t>* out) {
    *out = Take(name, field);
    if (!out->has_value()) {
      return std::nullopt;
    }
    if (**out < 1 || **out > kPpm) {
      return BadRequest(
          "invalid_budget",
          fmt::format("{}: wanted a ratio in (0, 1] with at most six decimal places", Param(name)),
          Param(name));
    }
    Note(name, RatioText(**out));
    return std::nullopt;
  }

  const std::string& source() const { return source_; }
  const std::string& conflict() const { return conflict_; }

 private:
  const BudgetFields& body_;
  const BudgetFields& header_;
  ResolvedBudget* resolved_;
  std::string source_ = "default";
  std::string conflict_;  // a field on which the sources disagree
};

constexpr int64_t kMaxTokens = int64_t{1} << 31;

ApiError PolicyUnsupported(const std::string& message, const std::string& param) {
  return BadRequest("policy_unsupported", message, param);
}

class Resolver {
 public:
  Resolver(const BudgetFields& body, const BudgetFields& header,
           const engine::KvPolicyRegistry& policies, int64_t prompt_tokens,
           const HeadMapInfo* head_map)
      : body_(body),
        header_(header),
        policies_(policies),
        prompt_tokens_(prompt_tokens),
        head_map_(head_map),
        reader_(body, header, &resolved_) {}

  std::variant<ResolvedBudget, ApiError> Run() {
    using Step = std::optional<ApiError> (Resolver::*)();
    for (Step step : {&Resolver::Budgets, &Resolver::Window, &Resolver::Settings, &Resolver::Mode,
                      &Resolver::Policy, &Resolver::HeadMapSettings, &Resolver::Recovery,
                      &Resolver::Options, &Resolver::Decode, &Resolver::Strict}) {
      if (std::optional<ApiError> error = (this->*step)(); error.has_value()) {
        return *error;
      }
    }
    return std::move(resolved_);
  }

 private:
  KvPolicySpec& spec() { return resolved_.spec; }

  std::optional<ApiError> Budgets() {
    if (auto error = reader_.Ratio("kv_retention", &BudgetFields::kv_retention_ppm, &retention_)) {
      return error;
    }
    if (auto error = reader_.Ratio("tsp_ratio", &BudgetFields::tsp_ratio_ppm, &tsp_)) {
      return error;
    }
    if (auto error = reader_.Integer("kv_retention_tokens", &BudgetFields::kv_retention_tokens, 1,
                                     kMaxTokens, &spec().retention_tokens)) {
      return error;
    }
    return reader_.Integer("tsp_tokens", &BudgetFields::tsp_tokens, 1, kMaxTokens,
                           &spec().tsp_tokens);
  }

  std::optional<ApiError> Window() {
    std::optional<int64_t> raw;
    std::optional<int64_t> content;
    if (auto error = reader_.Integer("kv_window", &BudgetFields::kv_window, 1, 256, &content)) {
      return error;
    }
    if (auto error = reader_.Integer("kv_window_raw", &BudgetFields::kv_window_raw, 1, 256, &raw)) {
      return error;
    }
    if (raw.has_value() && content.has_value()) {
      return BadRequest("invalid_budget", "kv_window and kv_window_raw: wanted one of them",
                        reader_.Param("kv_window_raw"));
    }
    spec().window_raw = raw.has_value();
    spec().window = static_cast<int32_t>(raw.value_or(content.value_or(spec().window)));
    return std::nullopt;
  }

  std::optional<ApiError> Settings() {
    if (const auto pool = reader_.Take("kv_pool", &BudgetFields::kv_pool); pool.has_value()) {
      if (*pool != "max" && *pool != "avg") {
        return BadRequest("invalid_budget",
                          fmt::format("{}: wanted max or avg", reader_.Param("kv_pool")),
                          reader_.Param("kv_pool"));
      }
      spec().pool = *pool == "max" ? kernels::PoolKind::kMax : kernels::PoolKind::kAvg;
      reader_.Note("kv_pool", fmt::format("\"{}\"", *pool));
    }
    std::optional<int64_t> value;
    if (auto error =
            reader_.Integer("kv_pool_width", &BudgetFields::kv_pool_width, 1, 31, &value)) {
      return error;
    }
    if (value.has_value()) {
      if (*value % 2 == 0) {
        return BadRequest("invalid_budget",
                          fmt::format("{}: got {}, wanted an odd number from 1 to 31",
                                      reader_.Param("kv_pool_width"), *value),
                          reader_.Param("kv_pool_width"));
      }
      spec().pool_width = static_cast<int32_t>(*value);
    }
    if (auto error =
            reader_.Integer("kv_sink_tokens", &BudgetFields::kv_sink_tokens, 0, 64, &value)) {
      return error;
    }
    spec().sink_tokens = static_cast<int32_t>(value.value_or(spec().sink_tokens));
    if (auto error = reader_.Integer("kv_min_prompt", &BudgetFields::kv_min_prompt, 0,
                                     kMaxTokens - 1, &value)) {
      return error;
    }
    spec().min_prompt = static_cast<int32_t>(value.value_or(spec().min_prompt));
    if (auto error = reader_.Integer("tsp_min_prompt", &BudgetFields::tsp_min_prompt, 0,
                                     kMaxTokens - 1, &value)) {
      return error;
    }
    spec().tsp_min_prompt = static_cast<int32_t>(value.value_or(spec().tsp_min_prompt));
    if (const auto strict = reader_.Take("kv_strict", &BudgetFields::kv_strict)) {
      spec().strict = *strict;
      reader_.Note("kv_strict", *strict ? "true" : "false");
    }
    return std::nullopt;
  }

  std::optional<ApiError> Mode() {
    mode_ = reader_.Take("kv_mode", &BudgetFields::kv_mode);
    if (!mode_.has_value()) {
      return std::nullopt;
    }
    mode_param_ = reader_.Param("kv_mode");
    if (*mode_ != "budget" && *mode_ != "recovery" && *mode_ != "both") {
      return BadRequest("invalid_budget",
                        fmt::format("{}: wanted budget, recovery or both", mode_param_),
                        mode_param_);
    }
    spec().mode = *mode_ == "recovery" ? KvMode::kRecovery
                  : *mode_ == "both"   ? KvMode::kBoth
                                       : KvMode::kBudget;
    reader_.Note("kv_mode", fmt::format("\"{}\"", *mode_));
    return std::nullopt;
  }

  // Which policy, and the budgets that the request leaves open. A mode with a recovery target is
  // a budget as well.
  std::optional<ApiError> Policy() {
    const auto name = reader_.Take("kv_policy", &BudgetFields::kv_policy);
    const std::string param = reader_.Param("kv_policy");
    const bool names_budget = retention_.has_value() || tsp_.has_value() ||
                              spec().retention_tokens.has_value() ||
                              spec().tsp_tokens.has_value() || spec().mode != KvMode::kBudget;
    const bool has_adaptive = policies_.Find(kAdaptive) != nullptr;
    if (name.has_value()) {
      if (policies_.Find(*name) == nullptr) {
        return UnknownPolicy(*name, param);
      }
      spec().policy = *name;
      reader_.Note("kv_policy", fmt::format("\"{}\"", *name));
    } else if (names_budget) {
      spec().policy = has_adaptive ? kAdaptive : "fastkv";
      if (!has_adaptive) {
        resolved_.reasons.push_back("no_head_map");
      }
    }
    const bool policy_alone = name.has_value() && !names_budget;
    const bool keeps_all = spec().policy == "full" || chosen().has_recovery();
    const int64_t open_retention = policy_alone && !keeps_all ? kPpm / 5 : kPpm;
    const bool has_tsp = spec().policy == "fastkv" || is_adaptive();
    const int64_t open_tsp = policy_alone && has_tsp ? kPpm / 5 : kPpm;
    spec().retention_ppm = retention_.value_or(open_retention);
    spec().tsp_ppm = tsp_.value_or(open_tsp);
    return std::nullopt;
  }

  const engine::KvPolicy& chosen() const { return *policies_.Find(resolved_.spec.policy); }
  bool is_adaptive() const { return resolved_.spec.policy == kAdaptive; }

  // kv_mode, kv_scope and kv_head_check: what only a head map can be asked for.
  std::optional<ApiError> HeadMapSettings() {
    if (mode_.has_value() && !is_adaptive()) {
      return NeedsHeadMap(mode_param_);
    }
    if (spec().mode == KvMode::kRecovery &&
        (retention_.has_value() || spec().retention_tokens.has_value())) {
      return PolicyUnsupported(
          fmt::format("{}: under recovery no kv_retention binds; both takes the smaller",
                      mode_param_),
          mode_param_);
    }
    if (const auto scope = reader_.Take("kv_scope", &BudgetFields::kv_scope)) {
      const std::string param = reader_.Param("kv_scope");
      if (*scope != "model" && *scope != "layer") {
        return BadRequest("invalid_budget", fmt::format("{}: wanted model or layer", param), param);
      }
      if (!is_adaptive()) {
        return NeedsHeadMap(param);
      }
      spec().scope = *scope == "layer" ? KvScope::kLayer : KvScope::kModel;
      reader_.Note("kv_scope", fmt::format("\"{}\"", *scope));
    }
    if (const auto check = reader_.Take("kv_head_check", &BudgetFields::kv_head_check)) {
      if (*check && !is_adaptive()) {
        return NeedsHeadMap(reader_.Param("kv_head_check"));
      }
      spec().head_check = *check;
      reader_.Note("kv_head_check", *check ? "true" : "false");
    }
    if (is_adaptive() && head_map_ != nullptr) {
      spec().head_check = spec().head_check || NeedsHeadCheck(*head_map_, prompt_tokens_);
      resolved_.head_map = head_map_->hash;
    }
    return std::nullopt;
  }

  ApiError NeedsHeadMap(const std::string& param) const {
    return PolicyUnsupported(
        fmt::format("{}: policy {} has no such setting, adaptive has{}", param,
                    resolved_.spec.policy,
                    policies_.Find(kAdaptive) == nullptr ? " (start with --head-map)" : ""),
        param);
  }

  std::optional<ApiError> Recovery() {
    std::optional<int64_t> recovery;
    if (auto error = reader_.Ratio("kv_recovery", &BudgetFields::kv_recovery_ppm, &recovery)) {
      return error;
    }
    const std::string param = reader_.Param("kv_recovery");
    const bool has_recovery =
        chosen().has_recovery() || (is_adaptive() && spec().mode != KvMode::kBudget);
    if (recovery.has_value() && !has_recovery) {
      return PolicyUnsupported(
          fmt::format("{}: policy {} has no recovery target{}", param, spec().policy,
                      is_adaptive() ? " under kv_mode budget" : ""),
          param);
    }
    if (recovery == kPpm) {
      return BadRequest("invalid_budget", fmt::format("{}: wanted a ratio in (0, 1)", param),
                        param);
    }
    const bool from_map = is_adaptive() && head_map_ != nullptr && head_map_->theta_ppm > 0;
    spec().recovery_ppm = recovery.value_or(from_map ? head_map_->theta_ppm : spec().recovery_ppm);
    if (has_recovery) {
      resolved_.applied_recovery = RatioText(spec().recovery_ppm);
    }
    return std::nullopt;
  }

  std::optional<ApiError> Options() {
    const auto options = reader_.Take("kv_options", &BudgetFields::kv_options);
    const Status applied = ApplyPolicyOptions(options.value_or(std::vector<PolicyOption>()),
                                              chosen(), &spec(), &resolved_.applied_options);
    if (!applied.ok()) {
      return BadRequest("invalid_budget", StatusMessage(applied), "kv_options");
    }
    return std::nullopt;
  }

  std::optional<ApiError> UnknownPolicy(const std::string& name, const std::string& param) {
    if (name == kAdaptive) {
      return PolicyUnsupported(
          fmt::format("{}: policy {} needs a head map (start with --head-map)", param, kAdaptive),
          param);
    }
    return BadRequest("invalid_budget",
                      fmt::format("{}: unknown policy, wanted one of {}", param,
                                  fmt::join(policies_.Names(), ", ")),
                      param);
  }

  std::optional<ApiError> Decode() {
    spec().decode = chosen().default_decode();
    if (const auto decode = reader_.Take("kv_decode", &BudgetFields::kv_decode)) {
      const std::string param = reader_.Param("kv_decode");
      if (*decode != "grow" && *decode != "typed") {
        return BadRequest("invalid_budget", fmt::format("{}: wanted grow or typed", param), param);
      }
      spec().decode = *decode == "typed" ? KvDecode::kTyped : KvDecode::kGrow;
      reader_.Note("kv_decode", fmt::format("\"{}\"", *decode));
    }
    const Status valid = policies_.Find(spec().policy)->Validate(spec());
    if (!valid.ok()) {
      return PolicyUnsupported(StatusMessage(valid), ParamOfFault(StatusMessage(valid)));
    }
    return std::nullopt;
  }

  // The policy where the client named one; else the field that the policy, chosen for the client,
  // cannot use: the message starts with its name.
  std::string ParamOfFault(const std::string& message) const {
    const std::string field = message.substr(0, message.find_first_of(": "));
    const ResolvedBudget::Field* found = nullptr;
    for (const ResolvedBudget::Field& asked : resolved_.asked) {
      if (asked.name == "kv_policy" || (found == nullptr && asked.name == field)) {
        found = &asked;
      }
    }
    return found == nullptr ? "kv_policy" : ParamIn(found->source, found->name);
  }

  // What a strict request refuses before anything runs; otherwise the receipt tells.
  std::optional<ApiError> Strict() {
    if (!reader_.conflict().empty()) {
      if (spec().strict) {
        return BadRequest("budget_conflict",
                          fmt::format("{}: body and header disagree", reader_.conflict()),
                          reader_.conflict());
      }
      resolved_.reasons.push_back("budget_conflict");
    }
    const auto num_tokens = static_cast<int32_t>(
        std::min<int64_t>(prompt_tokens_, std::numeric_limits<int32_t>::max()));
    if (spec().strict &&
        chosen().LeavesWhole(spec(), {.num_tokens = num_tokens, .content_end = num_tokens})) {
      return TooShort("kv_min_prompt", spec().min_prompt, "all of it would be kept");
    }
    if (spec().strict && engine::TspIsShort(spec(), prompt_tokens_)) {
      return TooShort("tsp_min_prompt", spec().tsp_min_prompt, "all rows would run");
    }
    return std::nullopt;
  }

  ApiError TooShort(const char* field, int32_t least, const char* effect) const {
    return BadRequest("budget_not_exact",
                      fmt::format("kv_strict: the prompt has {} tokens, {} is {}: {}",
                                  prompt_tokens_, field, least, effect),
                      "kv_strict");
  }

  const BudgetFields& body_;
  const BudgetFields& header_;
  const engine::KvPolicyRegistry& policies_;
  const int64_t prompt_tokens_;
  const HeadMapInfo* head_map_;  // may be null
  ResolvedBudget resolved_;
  FieldReader reader_;
  std::optional<int64_t> retention_;
  std::optional<int64_t> tsp_;
  std::optional<std::string> mode_;
  std::string mode_param_;  // kv_mode as the client wrote it
};

}  // namespace

std::variant<ResolvedBudget, ApiError> ResolveBudget(const BudgetFields& body,
                                                     const BudgetFields& header,
                                                     const engine::KvPolicyRegistry& policies,
                                                     int64_t prompt_tokens,
                                                     const HeadMapInfo* head_map) {
  return Resolver(body, header, policies, prompt_tokens, head_map).Run();
}

bool NeedsHeadCheck(const HeadMapInfo& head_map, int64_t prompt_tokens) {
  return head_map.other_weights || (head_map.profiled_tokens > 0 &&
                                    prompt_tokens / kMaxProfiledShare > head_map.profiled_tokens);
}

std::string RatioText(int64_t ppm) {
  std::string text = fmt::format("{}.{:06d}", ppm / kPpm, ppm % kPpm);
  while (text.back() == '0') {
    text.pop_back();
  }
  if (text.back() == '.') {
    text.pop_back();
  }
  return text;
}

std::optional<int64_t> ParseRatioPpm(std::string_view text) {
  int64_t whole = 0;
  int64_t fraction = 0;
  int64_t scale = kPpm;
  size_t i = 0;
  for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) {
    if (i > 6) {
      return std::nullopt;
    }
    whole = whole * 10 + (text[i] - '0');
  }
  const bool has_whole = i > 0;
  bool has_fraction = false;
  if (i < text.size() && text[i] == '.') {
    for (++i; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) {
      if (scale == 1) {
        return std::nullopt;
      }
      scale /= 10;
      fraction += (text[i] - '0') * scale;
      has_fraction = true;
    }
  }
  if (i != text.size() || !(has_whole || has_fraction)) {
    return std::nullopt;
  }
  return whole * kPpm + fraction;
}

std::optional<int64_t> RatioToPpm(double value) {
  if (!std::isfinite(value) || std::abs(value) > 1e6) {
    return std::nullopt;
  }
  const double scaled = value * static_cast<double>(kPpm);
  const double rounded = std::round(scaled);
  // A decimal with six places is off by the rounding of doubles only.
  if (std::abs(scaled - rounded) > 1e-7 * std::max(1.0, std::abs(value))) {
    return std::nullopt;
  }
  return static_cast<int64_t>(rounded);
}

}  // namespace headroom::server
