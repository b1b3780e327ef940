#include "engine/kv/head_map_binding.h"

#include <algorithm>

#include "base/sha256.h"
#include "engine/token_classes.h"
#include "models/file_error.h"
#include "models/fingerprint.h"

namespace headroom::engine {
namespace {

constexpr int64_t kSureConfidencePpm = 950'000;

std::string IdsHash(const std::vector<int32_t>& ids) {
  Sha256 hash;
  hash.UpdateText("ids/1");
  for (const int32_t id : ids) {
    hash.UpdateInteger(id);
  }
  return hash.FinishText();
}

MapTokenizer IdentifyTokenizer(const models::LoadedModel& loaded) {
  MapTokenizer result;
  if (loaded.tokenizer == nullptr) {
    return result;
  }
  result.vocab_hash = models::VocabHash(*loaded.tokenizer);
  if (loaded.chat_template.has_value()) {
    result.chat_template_hash = Sha256Text(*loaded.chat_template);
  }
  const TokenClasses classes = ClassifyVocabulary(*loaded.tokenizer);
  std::vector<int32_t> punctuation;
  for (size_t id = 0; id < classes->size(); ++id) {
    if ((*classes)[id] == TokenClass::kSpecial) {
      result.special_ids.push_back(static_cast<int32_t>(id));
    } else if ((*classes)[id] == TokenClass::kPunctuation) {
      punctuation.push_back(static_cast<int32_t>(id));
    }
  }
  result.punct_rule = kPunctRule;
  result.punct_ids_hash = IdsHash(punctuation);
  return result;
}

std::string ShapeOf(const MapModel& model) {
  return fmt::format("{} layers of {} query and {} KV heads of {}", model.num_layers,
                     model.num_query_heads, model.num_kv_heads, model.head_dim);
}

Status CheckArchitecture(const MapModel& map, const MapModel& model) {
  if (ShapeOf(map) != ShapeOf(model)) {
    return FailedPrecondition("the head map is of another model: got one of {}, wanted {}",
                              ShapeOf(map), ShapeOf(model));
  }
  if (map.arch_hash != model.arch_hash) {
    return FailedPrecondition(
        "the head map is of another architecture (RoPE, norms or widths differ): got {}, wanted {}",
        map.arch_hash, model.arch_hash);
  }
  return OkStatus();
}

Status CheckTokenizer(const MapTokenizer& map, const MapTokenizer& model) {
  const auto differs = [](const char* what, const std::string& got, const std::string& wanted) {
    return FailedPrecondition("the head map is of another tokenizer ({}): got {}, wanted {}", what,
                              got.empty() ? "none" : got, wanted.empty() ? "none" : wanted);
  };
  if (map.vocab_hash != model.vocab_hash) {
    return differs("vocabulary", map.vocab_hash, model.vocab_hash);
  }
  if (map.special_ids != model.special_ids) {
    return differs("special tokens", fmt::format("{} ids", map.special_ids.size()),
                   fmt::format("{} ids", model.special_ids.size()));
  }
  if (map.punct_rule != model.punct_rule || map.punct_ids_hash != model.punct_ids_hash) {
    return differs("punctuation", map.punct_rule + " " + map.punct_ids_hash,
                   model.punct_rule + " " + model.punct_ids_hash);
  }
  return OkStatus();
}

Status CheckWeights(const HeadMap& map, const MapModel& model, HeadMapCheck check,
                    HeadMapBinding* binding) {
  if (map.model.weights_hash == model.weights_hash) {
    return OkStatus();
  }
  if (std::binary_search(map.bound.begin(), map.bound.end(), model.weights_hash)) {
    binding->warnings.push_back(
        fmt::format("the head map was made on {} weights and bound to these {} ones",
                    map.model.weights_dtype, model.weights_dtype));
    return OkStatus();
  }
  const std::string fault = fmt::format("the head map was made on other weights: got {}, wanted {}",
                                        map.model.weights_hash, model.weights_hash);
  if (check == HeadMapCheck::kStrict) {
    return FailedPrecondition(
        "{}; `headroom headmap check` tests whether it still fits, --head-map-check warn serves it "
        "with kv_head_check",
        fault);
  }
  binding->other_weights = true;
  binding->warnings.push_back(fault +
                              "; kv_head_check is on, unsure cheap heads are taken for heavy");
  return OkStatus();
}

Status CheckValidation(const MapValidation& validation, HeadMapCheck check,
                       HeadMapBinding* binding) {
  if (validation.status == "pass") {
    return OkStatus();
  }
  std::string fault = validation.status == "fail" ? "the head map failed its validation"
                                                  : "the head map is not validated";
  if (!validation.reasons.empty()) {
    fault += fmt::format(": {}", fmt::join(validation.reasons, "; "));
  }
  if (validation.status == "fail" && check == HeadMapCheck::kStrict) {
    return FailedPrecondition("{}; --head-map-check warn serves it all the same", fault);
  }
  binding->warnings.push_back(std::move(fault));
  return OkStatus();
}

}  // namespace

ModelIdentity IdentifyModel(const models::LoadedModel& loaded, int num_threads) {
  ModelIdentity identity;
  MapModel& model = identity.model;
  model.name = models::Printable(loaded.name);
  model.num_layers = loaded.config.num_hidden_layers;
  model.num_query_heads = loaded.config.num_attention_heads;
  model.num_kv_heads = loaded.config.num_key_value_heads;
  model.head_dim = loaded.config.head_dim;
  model.arch_hash = models::ArchHash(loaded.config);
  model.weights_hash = models::AttentionWeightsHash(loaded.weights, num_threads);
  model.weights_scope = "full";
  model.weights_dtype = models::AttentionWeightsDType(loaded.weights);
  identity.tokenizer = IdentifyTokenizer(loaded);
  return identity;
}

std::optional<HeadMapCheck> FindHeadMapCheck(std::string_view name) {
  if (name == "strict") {
    return HeadMapCheck::kStrict;
  }
  return name == "warn" ? std::optional(HeadMapCheck::kWarn) : std::nullopt;
}

StatusOr<HeadMapBinding> CheckBinding(const HeadMap& map, const ModelIdentity& identity,
                                      HeadMapCheck check) {
  HeadMapBinding binding;
  HEADROOM_RETURN_IF_ERROR(CheckArchitecture(map.model, identity.model));
  HEADROOM_RETURN_IF_ERROR(CheckTokenizer(map.tokenizer, identity.tokenizer));
  HEADROOM_RETURN_IF_ERROR(CheckWeights(map, identity.model, check, &binding));
  HEADROOM_RETURN_IF_ERROR(CheckValidation(map.validation, check, &binding));
  if (map.tokenizer.chat_template_hash != identity.tokenizer.chat_template_hash) {
    binding.warnings.push_back("the head map was made with another chat template");
  }
  return binding;
}

std::shared_ptr<const HeadMap> BindHeadMap(HeadMap map, const HeadMapBinding& binding) {
  for (HeadEntry& head : map.heads) {
    const bool is_cheap = head.type == HeadType::kSpecial || head.type == HeadType::kPunct ||
                          head.type == HeadType::kLocal;
    if (binding.other_weights && is_cheap && head.confidence_ppm < kSureConfidencePpm) {
      head.type = HeadType::kHeavy;
    }
  }
  return std::make_shared<const HeadMap>(std::move(map));
}

int64_t ProfiledTokens(const HeadMap& map) {
  int64_t most = 0;
  for (const MapCorpus& part : map.profile.corpus) {
    most = std::max(most, part.prompts == 0 ? 0 : part.tokens / part.prompts);
  }
  return most;
}

HeadMap AddBound(HeadMap map, const std::string& weights_hash) {
  const auto place = std::lower_bound(map.bound.begin(), map.bound.end(), weights_hash);
  if (weights_hash != map.model.weights_hash &&
      (place == map.bound.end() || *place != weights_hash)) {
    map.bound.insert(place, weights_hash);
  }
  return map;
}

}  // namespace headroom::engine
