#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "models/file_error.h"
#include "models/hf_config.h"
#include "models/strict_json.h"

namespace headroom::models {
namespace {

using nlohmann::json;

// Reads fields of one object and remembers the first error. A null counts as absent.
class FieldReader {
 public:
  FieldReader(const json& object, std::string path) : object_(object), path_(std::move(path)) {}

  const json* Find(const char* key) const {
    const auto place = object_.find(key);
    return place == object_.end() || place->is_null() ? nullptr : &*place;
  }

  std::optional<int32_t> Int(const char* key) {
    const json* value = Find(key);
    if (value == nullptr) {
      return std::nullopt;
    }
    if (!IsInt32(*value)) {
      Fail(key, "wanted a 32-bit integer");
      return std::nullopt;
    }
    return static_cast<int32_t>(value->get<int64_t>());
  }

  std::optional<double> Number(const char* key) {
    const json* value = Find(key);
    if (value == nullptr) {
      return std::nullopt;
    }
    if (!value->is_number() || !std::isfinite(value->get<double>())) {
      Fail(key, "wanted a finite number");
      return std::nullopt;
    }
    return value->get<double>();
  }

  bool Bool(const char* key, bool fallback) {
    const json* value = Find(key);
    if (value == nullptr) {
      return fallback;
    }
    if (!value->is_boolean()) {
      Fail(key, "wanted true or false");
      return fallback;
    }
    return value->get<bool>();
  }

  std::string Text(const char* key, const char* fallback) {
    const json* value = Find(key);
    if (value == nullptr) {
      return fallback;
    }
    if (!value->is_string()) {
      Fail(key, "wanted a string");
      return fallback;
    }
    return value->get<std::string>();
  }

  int32_t RequiredInt(const char* key) {
    const std::optional<int32_t> value = Int(key);
    if (!value.has_value() && Find(key) == nullptr) {
      Fail(key, "missing");
    }
    return value.value_or(0);
  }

  // One id, a list of ids, or absent.
  std::vector<int32_t> Ids(const char* key) {
    const json* value = Find(key);
    std::vector<int32_t> ids;
    if (value == nullptr) {
      return ids;
    }
    const json list = value->is_array() ? *value : json::array({*value});
    for (const json& id : list) {
      if (!IsInt32(id) || id.get<int64_t>() < 0) {
        Fail(key, "wanted a token id or a list of token ids");
        return {};
      }
      ids.push_back(static_cast<int32_t>(id.get<int64_t>()));
    }
    return ids;
  }

  void Fail(const char* key, const std::string& fault) {
    if (status_.ok()) {
      const json* value = Find(key);
      const bool scalar = value != nullptr && (value->is_number() || value->is_boolean());
      const std::string got =
          value == nullptr ? "" : fmt::format(" ({})", scalar ? value->dump() : value->type_name());
      status_ = InvalidArgument("{}: \"{}\"{}: {}", path_, key, got, fault);
    }
  }

  const Status& status() const { return status_; }
  const std::string& path() const { return path_; }

 private:
  static bool IsInt32(const json& value) {
    if (value.is_number_unsigned()) {
      return value.get<uint64_t>() <= static_cast<uint64_t>(INT32_MAX);
    }
    return value.is_number_integer() && value.get<int64_t>() >= INT32_MIN &&
           value.get<int64_t>() <= INT32_MAX;
  }

  const json& object_;
  std::string path_;
  Status status_;
};

// rope_scaling of older files, rope_parameters of newer ones.
Status ReadRopeScaling(const json& object, const std::string& path, ModelConfig& config) {
  FieldReader fields(object, path);
  const std::string kind = fields.Text("rope_type", fields.Text("type", "default").c_str());
  config.rope_theta = fields.Number("rope_theta").value_or(config.rope_theta);
  if (kind == "linear") {
    config.rope_scaling = RopeScaling::kLinear;
  } else if (kind == "llama3") {
    config.rope_scaling = RopeScaling::kLlama3;
    config.rope_low_freq_factor = fields.Number("low_freq_factor").value_or(1.0);
    config.rope_high_freq_factor = fields.Number("high_freq_factor").value_or(4.0);
    config.rope_original_max_position = fields.RequiredInt("original_max_position_embeddings");
  } else if (kind != "default") {
    return InvalidArgument("{}: rope scaling \"{}\", wanted default, linear or llama3", path,
                           Printable(kind));
  }
  if (config.rope_scaling != RopeScaling::kNone) {
    const std::optional<double> factor = fields.Number("factor");
    if (!factor.has_value()) {
      fields.Fail("factor", "wanted a number");
    }
    config.rope_factor = factor.value_or(1.0);
  }
  return fields.status();
}

Status ReadRope(const json& root, FieldReader& fields, ModelConfig& config) {
  config.rope_pairing = RopePairing::kHalves;
  config.rope_theta = fields.Number("rope_theta").value_or(10000.0);
  if (fields.Number("partial_rotary_factor").value_or(1.0) != 1.0) {
    fields.Fail("partial_rotary_factor", "rotating a part of a head is not supported");
  }
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const json* scaling = fields.Find(key);
    if (scaling == nullptr) {
      continue;
    }
    if (!scaling->is_object()) {
      fields.Fail(key, "wanted an object or null");
      continue;
    }
    HEADROOM_RETURN_IF_ERROR(ReadRopeScaling(*scaling, fields.path(), config));
  }
  return OkStatus();
}

void RefuseUnsupported(FieldReader& fields) {
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    if (fields.Bool(key, false)) {
      fields.Fail(key, "models with biases are not supported");
    }
  }
  if (fields.Text("hidden_act", "silu") != "silu") {
    fields.Fail("hidden_act", "wanted \"silu\"");
  }
  if (fields.Int("sliding_window").has_value()) {
    fields.Fail("sliding_window", "sliding windows are not supported");
  }
  if (fields.Find("quantization_config") != nullptr) {
    fields.Fail("quantization_config", "quantised checkpoints are not supported; use a GGUF file");
  }
}

void ReadShape(FieldReader& fields, ModelConfig& config) {
  config.vocab_size = fields.RequiredInt("vocab_size");
  config.hidden_size = fields.RequiredInt("hidden_size");
  config.intermediate_size = fields.RequiredInt("intermediate_size");
  config.num_hidden_layers = fields.RequiredInt("num_hidden_layers");
  config.num_attention_heads = fields.RequiredInt("num_attention_heads");
  config.num_key_value_heads =
      fields.Int("num_key_value_heads").value_or(config.num_attention_heads);
  config.max_position_embeddings = fields.Int("max_position_embeddings").value_or(2048);
  config.rms_norm_eps = static_cast<float>(fields.Number("rms_norm_eps").value_or(1e-6));
  config.tie_word_embeddings = fields.Bool("tie_word_embeddings", false);
  const int32_t heads = config.num_attention_heads;
  const bool divides = heads > 0 && config.hidden_size % heads == 0;
  config.head_dim = fields.Int("head_dim").value_or(divides ? config.hidden_size / heads : 0);
}

}  // namespace

StatusOr<HfConfig> ParseHfConfig(std::string_view text, const std::string& path) {
  HEADROOM_RETURN_IF_ERROR(CheckStrictJson(text, path));
  const json root = json::parse(text, nullptr, /*allow_exceptions=*/false);
  HfConfig result;
  FieldReader fields(root, path);
  const json* architectures = fields.Find("architectures");
  if (architectures == nullptr || !architectures->is_array() || architectures->size() != 1 ||
      !(*architectures)[0].is_string()) {
    return InvalidArgument("{}: \"architectures\": wanted a list of one name", path);
  }
  result.config.architecture = (*architectures)[0].get<std::string>();
  RefuseUnsupported(fields);
  ReadShape(fields, result.config);
  HEADROOM_RETURN_IF_ERROR(ReadRope(root, fields, result.config));
  result.eos_token_ids = fields.Ids("eos_token_id");
  HEADROOM_RETURN_IF_ERROR(fields.status());
  return result;
}

StatusOr<HfGenerationConfig> ParseHfGenerationConfig(std::string_view text,
                                                     const std::string& path) {
  HEADROOM_RETURN_IF_ERROR(CheckStrictJson(text, path));
  const json root = json::parse(text, nullptr, /*allow_exceptions=*/false);
  HfGenerationConfig result;
  FieldReader fields(root, path);
  const auto number = [&fields](const char* key, double low, double high) -> std::optional<float> {
    const std::optional<double> value = fields.Number(key);
    if (value.has_value() && (*value < low || *value > high)) {
      fields.Fail(key, fmt::format("wanted {}..{}", low, high));
    }
    return value.has_value() ? std::optional<float>(static_cast<float>(*value)) : std::nullopt;
  };
  result.defaults.temperature = number("temperature", 0.0, 100.0);
  result.defaults.top_p = number("top_p", 0.0, 1.0);
  result.defaults.min_p = number("min_p", 0.0, 1.0);
  result.defaults.repetition_penalty = number("repetition_penalty", 1e-3, 1e3);
  result.defaults.top_k = fields.Int("top_k");
  if (result.defaults.top_k.value_or(0) < 0) {
    fields.Fail("top_k", "wanted 0 or more");
  }
  result.eos_token_ids = fields.Ids("eos_token_id");
  HEADROOM_RETURN_IF_ERROR(fields.status());
  return result;
}

}  // namespace headroom::models
