#include "engine/kv/head_map_json.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/sha256.h"
#include "engine/kv/head_map.h"

namespace headroom::engine {
namespace {

// A ratio; exact, as all parts per million stay below 2^53.
Json Ratio(int64_t ppm) { return static_cast<double>(ppm) / 1e6; }
// -1 stands for what was not measured.
Json Measured(int64_t ppm) { return ppm == -1 ? Json(nullptr) : Ratio(ppm); }

Json ToJson(const MapModel& model) {
  return {{"name", model.name},
          {"layers", model.num_layers},
          {"query_heads", model.num_query_heads},
          {"kv_heads", model.num_kv_heads},
          {"head_dim", model.head_dim},
          {"arch_hash", model.arch_hash},
          {"weights_hash", model.weights_hash},
          {"weights_scope", model.weights_scope},
          {"weights_dtype", model.weights_dtype}};
}

Json ToJson(const MapTokenizer& tokenizer) {
  return {{"vocab_hash", tokenizer.vocab_hash},
          {"chat_template_hash", tokenizer.chat_template_hash},
          {"special_ids", tokenizer.special_ids},
          {"punct_rule", tokenizer.punct_rule},
          {"punct_ids_hash", tokenizer.punct_ids_hash}};
}

Json ToJson(const std::vector<MapCorpus>& corpus) {
  Json list = Json::array();
  for (const MapCorpus& part : corpus) {
    list.push_back({{"domain", part.domain},
                    {"hash", part.hash},
                    {"prompts", part.prompts},
                    {"tokens", part.tokens}});
  }
  return list;
}

Json ToJson(const MapProfile& profile) {
  return {{"version", profile.version},
          {"backend", profile.backend},
          {"kv_dtype", profile.kv_dtype},
          {"metric", profile.metric},
          {"ladder", profile.ladder},
          {"classifier", profile.classifier},
          {"group_reduce", profile.group_reduce},
          {"eval_rows", profile.eval_rows},
          {"select_rows", profile.select_rows},
          {"theta", Ratio(profile.theta_ppm)},
          {"budget_ratio", Ratio(profile.budget_ratio_ppm)},
          {"probe_threshold", Ratio(profile.probe_threshold_ppm)},
          {"sink_tokens", profile.sink_tokens},
          {"recent_tokens", profile.recent_tokens},
          {"seed", profile.seed},
          {"reference_tokens", profile.reference_tokens},
          {"reference_special", profile.reference_special},
          {"reference_punctuation", profile.reference_punctuation},
          {"corpus", ToJson(profile.corpus)},
          {"probes", ToJson(profile.probes)}};
}

Json Curve(const std::vector<CurvePoint>& curve, bool sizes_are_shares) {
  Json list = Json::array();
  for (const CurvePoint& point : curve) {
    list.push_back(Json::array(
        {sizes_are_shares ? Ratio(point.size) : Json(point.size), Ratio(point.mass_ppm)}));
  }
  return list;
}

Json Masses(const HeadEntry& head) {
  Json json = Json::object();
  for (size_t i = 0; i < kMassNames.size(); ++i) {
    json[kMassNames[i]] = Ratio(head.masses_ppm[i]);
  }
  return json;
}

Json ToJson(const HeadEntry& head) {
  Json recovery = Json::array();
  for (const RungRecovery& rung : head.recovery) {
    recovery.push_back({{"rung", rung.rung},
                        {"p10", Ratio(rung.p10_ppm)},
                        {"mean", Ratio(rung.mean_ppm)},
                        {"value_error", Measured(rung.value_error_ppm)}});
  }
  Json per_domain = Json::object();
  for (const auto& [domain, type] : head.per_domain) {
    per_domain[domain] = HeadTypeName(type);
  }
  Json query_types = Json::array();
  for (const HeadType type : head.query_types) {
    query_types.push_back(HeadTypeName(type));
  }
  return {{"type", HeadTypeName(head.type)},
          {"confidence", Ratio(head.confidence_ppm)},
          {"margin", Ratio(head.margin_ppm)},
          {"borderline", head.borderline},
          {"budget", {{"tokens", head.budget_tokens}, {"share", Ratio(head.budget_ppm)}}},
          {"window", head.window},
          {"keeps_punctuation", head.keeps_punctuation},
          {"heavy_share", Ratio(head.heavy_ppm)},
          {"weight", Ratio(head.weight_ppm)},
          {"copy", Ratio(head.copy_ppm)},
          {"fill_rank", head.fill_rank < 0 ? Json(nullptr) : Json(head.fill_rank)},
          {"induction", Ratio(head.induction_ppm)},
          {"masses", Masses(head)},
          {"recovery", std::move(recovery)},
          {"curve_heavy", Curve(head.curve_heavy, /*sizes_are_shares=*/true)},
          {"curve_local", Curve(head.curve_local, /*sizes_are_shares=*/false)},
          {"per_domain", std::move(per_domain)},
          {"query_types", std::move(query_types)}};
}

Json Layers(const HeadMap& map) {
  Json layers = Json::array();
  for (int32_t layer = 0; layer < map.model.num_layers; ++layer) {
    Json heads = Json::array();
    for (int32_t g = 0; g < map.model.num_kv_heads; ++g) {
      heads.push_back(ToJson(map.head(layer, g)));
    }
    layers.push_back({{"kv", std::move(heads)}});
  }
  return layers;
}

Json ToJson(const TspChoice& tsp) {
  Json overlap = Json::array();
  for (const int64_t share : tsp.overlap_ppm) {
    overlap.push_back(Ratio(share));
  }
  Json candidates = Json::array();
  for (const TspCandidate& candidate : tsp.candidates) {
    candidates.push_back({{"layer", candidate.layer},
                          {"tsp", Ratio(candidate.tsp_ppm)},
                          {"row_layers", Ratio(candidate.row_layers_ppm)},
                          {"probe_above", Ratio(candidate.probe_above_ppm)},
                          {"delta_nll", Ratio(candidate.delta_nll_ppm)},
                          {"seen", Measured(candidate.seen_ppm)},
                          {"unseen", Measured(candidate.unseen_ppm)},
                          {"validated", candidate.validated}});
  }
  return {
      {"layer", tsp.layer}, {"overlap", std::move(overlap)}, {"candidates", std::move(candidates)}};
}

Json ToJson(const std::vector<SpendPlan>& spend) {
  Json list = Json::array();
  for (const SpendPlan& plan : spend) {
    Json points = Json::array();
    for (const SpendPoint& point : plan.points) {
      points.push_back(Json::array({Ratio(point.retention_ppm), Ratio(point.dense_share_ppm)}));
    }
    list.push_back({{"prefer", plan.prefer},
                    {"local_share", Ratio(plan.local_share_ppm)},
                    {"layers_by_demand", plan.layers_by_demand},
                    {"points", std::move(points)}});
  }
  return list;
}

Json ToJson(const std::vector<ValidationRow>& rows) {
  Json list = Json::array();
  for (const ValidationRow& row : rows) {
    list.push_back({{"policy", row.policy},
                    {"retention", Ratio(row.retention_ppm)},
                    {"dense_share", Measured(row.dense_share_ppm)},
                    {"local_share", Measured(row.local_share_ppm)},
                    {"entries", Ratio(row.entries_ppm)},
                    {"delta_nll", Ratio(row.delta_nll_ppm)},
                    {"kl", Ratio(row.kl_ppm)},
                    {"p99_kl", Ratio(row.p99_kl_ppm)},
                    {"top1", Ratio(row.top1_ppm)},
                    {"seen", Measured(row.seen_ppm)},
                    {"unseen", Measured(row.unseen_ppm)}});
  }
  return list;
}

Json ToJson(const MapValidation& validation) {
  return {{"status", validation.status},       {"reasons", validation.reasons},
          {"documents", validation.documents}, {"needles", validation.needles},
          {"rows", ToJson(validation.rows)},   {"front", ToJson(validation.front)}};
}

bool IsOneLine(const Json& json) {
  for (const Json& member : json) {
    if (!member.is_structured()) {
      continue;
    }
    if (!json.is_array() || !member.is_array()) {
      return false;
    }
    for (const Json& inner : member) {
      if (inner.is_structured()) {
        return false;
      }
    }
  }
  return true;
}

void AppendText(const Json& json, int indent, std::string* text);

// Members one a line, or all in one line where they are scalars or lists of scalars.
void AppendMembers(const Json& json, int indent, std::string* text) {
  const bool one_line = IsOneLine(json);
  const std::string newline = one_line ? "" : fmt::format("\n{:{}}", "", indent);
  bool first = true;
  for (const auto& item : json.items()) {
    *text += first ? "" : one_line ? ", " : ",";
    *text += first || !one_line ? newline : "";
    if (json.is_object()) {
      AppendText(Json(item.key()), indent, text);
      *text += ": ";
    }
    AppendText(item.value(), indent + 1, text);
    first = false;
  }
  if (!one_line && !first) {
    *text += fmt::format("\n{:{}}", "", indent - 1);
  }
}

// `indent`: the column of the members of `json`. Depth is that of the schema.
void AppendText(const Json& json, int indent, std::string* text) {
  if (json.is_structured()) {
    *text += json.is_object() ? '{' : '[';
    AppendMembers(json, indent, text);
    *text += json.is_object() ? '}' : ']';
  } else if (json.is_number_float()) {
    *text += PpmText(std::llround(json.get<double>() * 1e6));
  } else {
    *text += json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
  }
}

std::string Text(const Json& json) {
  std::string text;
  AppendText(json, /*indent=*/1, &text);
  return text + "\n";
}

}  // namespace

Json SummaryJson(const HeadMap& map) {
  const auto counts = CountHeadTypes(map);
  Json types = Json::object();
  for (int32_t i = 0; i < kNumHeadTypes; ++i) {
    types[HeadTypeName(static_cast<HeadType>(i))] = counts[static_cast<size_t>(i)];
  }
  Json matrix = Json::array();
  for (int32_t layer = 0; layer < map.model.num_layers; ++layer) {
    std::string line;
    for (int32_t g = 0; g < map.model.num_kv_heads; ++g) {
      line += fmt::format("{}{}", g > 0 ? " " : "", HeadTypeName(map.head(layer, g).type));
    }
    matrix.push_back(std::move(line));
  }
  return {{"types", std::move(types)}, {"matrix", std::move(matrix)}};
}

HashedText WriteHashed(const HeadMap& map) {
  Json json = {{"schema", kHeadMapSchema},       {"bound", map.bound},
               {"model", ToJson(map.model)},     {"tokenizer", ToJson(map.tokenizer)},
               {"profile", ToJson(map.profile)}, {"layers", Layers(map)},
               {"tsp", ToJson(map.tsp)},         {"spend", ToJson(map.spend)},
               {"summary", SummaryJson(map)},    {"validation", ToJson(map.validation)}};
  HashedText result;
  result.hash = Sha256Text(Text(json));
  json["map_hash"] = result.hash;
  result.text = Text(json);
  return result;
}

std::string WriteHeadMap(const HeadMap& map) { return WriteHashed(map).text; }

}  // namespace headroom::engine
