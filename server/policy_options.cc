#include "server/policy_options.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "server/budget_resolver.h"

namespace headroom::server {
namespace {

using engine::KvPolicyOptions;
using Value = decltype(PolicyOption::value);

constexpr int64_t kMaxSeed = (int64_t{1} << 53) - 1;  // whole numbers of JSON

std::optional<int64_t> RatioOf(const Value& value) {
  const auto* whole = std::get_if<int64_t>(&value);
  const auto* real = std::get_if<double>(&value);
  if (whole == nullptr && real == nullptr) {
    return std::nullopt;
  }
  const std::optional<int64_t> ppm =
      RatioToPpm(whole != nullptr ? static_cast<double>(*whole) : *real);
  return ppm.has_value() && *ppm >= 0 && *ppm <= engine::kPpm ? ppm : std::nullopt;
}

// Each reads one option (false: not a value of it) and tells what is applied as a JSON literal.
struct OptionKind {
  const char* name;
  const char* wanted;
  bool (*read)(const Value& value, KvPolicyOptions* options);
  std::string (*text)(const KvPolicyOptions& options);
};

template <int64_t KvPolicyOptions::*kField>
bool ReadRatio(const Value& value, KvPolicyOptions* options) {
  const std::optional<int64_t> ppm = RatioOf(value);
  options->*kField = ppm.value_or(options->*kField);
  return ppm.has_value();
}
template <int64_t KvPolicyOptions::*kField>
std::string RatioOption(const KvPolicyOptions& options) {
  return RatioText(options.*kField);
}

// The map's own share where it is not named.
template <std::optional<int64_t> KvPolicyOptions::*kField, int64_t kMost>
bool ReadShare(const Value& value, KvPolicyOptions* options) {
  options->*kField = RatioOf(value);
  return (options->*kField).has_value() && *(options->*kField) <= kMost;
}
template <std::optional<int64_t> KvPolicyOptions::*kField>
std::string ShareOption(const KvPolicyOptions& options) {
  return (options.*kField).has_value() ? RatioText(*(options.*kField)) : "null";
}

bool ReadFraction(const Value& value, KvPolicyOptions* options) {
  return ReadRatio<&KvPolicyOptions::fraction_ppm>(value, options) && options->fraction_ppm > 0;
}

bool ReadCountNormalised(const Value& value, KvPolicyOptions* options) {
  const auto* flag = std::get_if<bool>(&value);
  options->count_normalised = flag != nullptr && *flag;
  return flag != nullptr;
}

// One of two names.
bool ReadChoice(const Value& value, const char* no, const char* yes, bool* out) {
  const auto* name = std::get_if<std::string>(&value);
  *out = name != nullptr && *name == yes;
  return name != nullptr && (*name == no || *name == yes);
}
bool ReadRows(const Value& value, KvPolicyOptions* options) {
  return ReadChoice(value, "recent", "all", &options->all_rows);
}
bool ReadSchedule(const Value& value, KvPolicyOptions* options) {
  return ReadChoice(value, "cosine", "flat", &options->flat);
}

bool ReadFilterLayer(const Value& value, KvPolicyOptions* options) {
  const auto* layer = std::get_if<int64_t>(&value);
  if (layer == nullptr || *layer < 0 || *layer > INT32_MAX) {
    return false;
  }
  options->filter_layer = static_cast<int32_t>(*layer);
  return true;
}

bool ReadSeed(const Value& value, KvPolicyOptions* options) {
  const auto* seed = std::get_if<int64_t>(&value);
  if (seed == nullptr || *seed < 0 || *seed > kMaxSeed) {
    return false;
  }
  options->seed = static_cast<uint64_t>(*seed);
  return true;
}

constexpr const char* kShareWanted = "a ratio in [0, 1] with at most six decimal places";
constexpr const char* kRatioWanted = "a ratio in (0, 1] with at most six decimal places";

constexpr OptionKind kOptions[] = {
    {"alpha", kShareWanted, ReadRatio<&KvPolicyOptions::alpha_ppm>,
     RatioOption<&KvPolicyOptions::alpha_ppm>},
    {"recent_share", kShareWanted, ReadRatio<&KvPolicyOptions::recent_share_ppm>,
     RatioOption<&KvPolicyOptions::recent_share_ppm>},
    {"fraction", kRatioWanted, ReadFraction, RatioOption<&KvPolicyOptions::fraction_ppm>},
    {"dense_share", kShareWanted, ReadShare<&KvPolicyOptions::dense_share_ppm, engine::kPpm>,
     ShareOption<&KvPolicyOptions::dense_share_ppm>},
    {"local_share", "a ratio in [0, 0.5] with at most six decimal places",
     ReadShare<&KvPolicyOptions::local_share_ppm, engine::kPpm / 2>,
     ShareOption<&KvPolicyOptions::local_share_ppm>},
    {"count_normalised", "true or false", ReadCountNormalised,
     [](const KvPolicyOptions& options) {
       return std::string(options.count_normalised ? "true" : "false");
     }},
    {"rows", "recent or all", ReadRows,
     [](const KvPolicyOptions& options) {
       return std::string(options.all_rows ? "\"all\"" : "\"recent\"");
     }},
    {"schedule", "cosine or flat", ReadSchedule,
     [](const KvPolicyOptions& options) {
       return std::string(options.flat ? "\"flat\"" : "\"cosine\"");
     }},
    {"filter_layer", "the index of a layer", ReadFilterLayer,
     [](const KvPolicyOptions& options) {
       return options.filter_layer < 0 ? std::string("null")
                                       : fmt::format("{}", options.filter_layer);
     }},
    {"seed", "a whole number from 0 to 2^53 - 1", ReadSeed,
     [](const KvPolicyOptions& options) { return fmt::format("{}", options.seed); }},
};

const OptionKind* FindOption(std::string_view name) {
  const auto found = std::find_if(std::begin(kOptions), std::end(kOptions),
                                  [&](const OptionKind& kind) { return kind.name == name; });
  return found == std::end(kOptions) ? nullptr : &*found;
}

}  // namespace

Status ApplyPolicyOptions(const std::vector<PolicyOption>& options, const engine::KvPolicy& policy,
                          engine::KvPolicySpec* spec,
                          std::vector<std::pair<std::string, std::string>>* applied) {
  const std::vector<std::string> names = policy.OptionNames();
  for (const PolicyOption& option : options) {
    const OptionKind* kind = FindOption(option.name);
    if (kind == nullptr || std::find(names.begin(), names.end(), option.name) == names.end()) {
      // The name is the client's text and is not repeated.
      return names.empty() ? InvalidArgument("kv_options: policy {} has no settings of its own",
                                             policy.name())
                           : InvalidArgument("kv_options: policy {} has no such setting; it has {}",
                                             policy.name(), fmt::join(names, ", "));
    }
    if (!kind->read(option.value, &spec->options)) {
      return InvalidArgument("kv_options.{}: wanted {}", kind->name, kind->wanted);
    }
  }
  for (const std::string& name : names) {
    if (const OptionKind* kind = FindOption(name); kind != nullptr) {
      applied->emplace_back(name, kind->text(spec->options));
    }
  }
  return OkStatus();
}

}  // namespace headroom::server
