#include <nlohmann/json.hpp>

#include "profiler/evaluation/report.h"

namespace headroom::profiler {
namespace {

using Json = nlohmann::ordered_json;

double Share(int64_t ppm) { return static_cast<double>(ppm) / 1e6; }

Json ToJson(const Interval& interval) {
  return {{"value", interval.value}, {"low", interval.low}, {"high", interval.high}};
}
Json ToJson(const std::optional<Interval>& interval) {
  return interval.has_value() ? ToJson(*interval) : Json(nullptr);
}

Json ToJson(const EvalSettings& settings) {
  Json json;
  json["model"] = settings.model;
  json["backend"] = settings.backend;
  json["layers"] = settings.num_layers;
  json["kv_heads"] = settings.num_kv_heads;
  json["group_size"] = settings.group_size;
  json["head_dim"] = settings.head_dim;
  json["tsp_layer"] = settings.tsp_layer;
  json["bootstrap_resamples"] = settings.num_resamples;
  json["seed"] = settings.seed;
  json["flags"] = Json::object();
  for (const auto& [name, value] : settings.flags) {
    json["flags"][name] = value;
  }
  return json;
}

Json ToJson(const EvalRow& row) {
  Json json;
  json["label"] = RowLabel(row);
  json["policy"] = row.policy;
  json["retention"] = Share(row.retention_ppm);
  json["tsp"] = Share(row.tsp_ppm);
  json["theta"] = row.theta_ppm.has_value() ? Json(Share(*row.theta_ppm)) : Json(nullptr);
  json["kv_dtype"] = DTypeName(row.kv_dtype);
  json["refused"] = row.runs() ? Json(nullptr) : Json(row.refusal);
  return json;
}

Json ToJson(const DocumentInfo& document) {
  return {{"id", document.id},
          {"source", document.source},
          {"tokens", document.num_tokens},
          {"prefix_tokens", document.prefix_tokens},
          {"scored_tokens", document.num_scored},
          {"key_tokens", document.num_key_tokens},
          {"full_nll", document.full_nll}};
}

Json ToJson(const KvCost& cost) {
  return {{"physical_bytes", cost.physical_bytes},
          {"physical_bytes_end", cost.physical_bytes_end},
          {"nominal_bytes", cost.nominal_bytes},
          {"entries", cost.entries},
          {"propagated_tokens", cost.propagated_tokens}};
}

Json ToJson(const DocumentScore& score, const DocumentInfo& document) {
  Json json;
  json["id"] = document.id;
  json["delta_nll"] = score.delta_nll;
  json["kl_mean"] = score.mean_kl;
  json["kl_p99"] = score.p99_kl;
  json["top1"] = score.top1;
  const bool has_keys = document.num_key_tokens > 0;
  json["key_delta_nll"] =
      has_keys ? Json(score.key_delta_nll_sum / document.num_key_tokens) : Json(nullptr);
  json["key_top1"] = has_keys
                         ? Json(static_cast<double>(score.key_agreements) / document.num_key_tokens)
                         : Json(nullptr);
  json["kv"] = ToJson(score.cost);
  return json;
}

Json ToJson(const FidelitySummary& summary) {
  Json json;
  json["delta_nll"] = ToJson(summary.delta_nll);
  json["ppl_ratio"] = ToJson(summary.ppl_ratio);
  json["kl_mean"] = ToJson(summary.mean_kl);
  json["kl_p99"] = ToJson(summary.p99_kl);
  json["top1"] = ToJson(summary.top1);
  json["key_delta_nll"] = ToJson(summary.key_delta_nll);
  json["key_top1"] = ToJson(summary.key_top1);
  json["physical_bytes"] = summary.physical_bytes;
  json["physical_bytes_end"] = summary.physical_bytes_end;
  json["nominal_bytes"] = summary.nominal_bytes;
  json["physical_share"] = summary.physical_share;
  return json;
}

Json ToJson(const FidelityReport& fidelity) {
  Json json;
  json["continuation_tokens"] = fidelity.continuation_tokens;
  json["documents"] = Json::array();
  for (const DocumentInfo& document : fidelity.documents) {
    json["documents"].push_back(ToJson(document));
  }
  json["groups"] = Json::array();
  for (const FidelityGroup& group : fidelity.groups) {
    Json rows = Json::array();
    for (size_t r = 0; r < group.rows.size(); ++r) {
      if (group.rows[r].has_value()) {
        Json row = ToJson(*group.rows[r]);
        row["row"] = r;
        rows.push_back(std::move(row));
      }
    }
    json["groups"].push_back(
        {{"tokens", group.num_tokens == 0 ? Json(nullptr) : Json(group.num_tokens)},
         {"documents", group.documents},
         {"key_tokens", group.num_key_tokens},
         {"full_ppl", group.full_ppl},
         {"rows", std::move(rows)}});
  }
  json["scores"] = Json::array();
  for (size_t r = 0; r < fidelity.scores.size(); ++r) {
    if (fidelity.scores[r].empty()) {
      continue;
    }
    Json documents = Json::array();
    for (size_t d = 0; d < fidelity.documents.size(); ++d) {
      documents.push_back(ToJson(fidelity.scores[r][d], fidelity.documents[d]));
    }
    json["scores"].push_back({{"row", r}, {"documents", std::move(documents)}});
  }
  return json;
}

Json ToJson(const NeedleSummary& summary) {
  Json json;
  json["right"] = ToJson(summary.right);
  json["difference"] = ToJson(summary.difference);
  json["mcnemar_p"] = summary.mcnemar_p;
  json["holm_p"] = summary.holm_p;
  json["right_after_first"] = ToJson(summary.right_after_first);
  json["rank_accuracy"] = ToJson(summary.rank_accuracy);
  json["reciprocal_rank"] = ToJson(summary.reciprocal_rank);
  json["margin"] = ToJson(summary.margin);
  json["physical_bytes"] = summary.physical_bytes;
  json["nominal_bytes"] = summary.nominal_bytes;
  json["physical_share"] = summary.physical_share;
  json["heat"] = summary.heat;
  return json;
}

Json ToJson(const NeedleScore& score, const NeedleInfo& prompt, bool is_text) {
  Json json;
  json["id"] = prompt.id;
  json["right"] = score.right;
  json["right_after_first"] = is_text ? Json(nullptr) : Json(score.right_after_first);
  json["rank"] = score.rank > 0 ? Json(score.rank) : Json(nullptr);
  json["margin"] = score.rank > 0 ? Json(score.margin) : Json(nullptr);
  json["kv"] = ToJson(score.cost);
  return json;
}

Json ToJson(const NeedleReport& needles) {
  Json json;
  json["task"] = needles.task;
  json["protocol"] = ProtocolName(needles.protocol);
  json["kind"] = needles.is_text ? "text" : "exact";
  json["prompts"] = Json::array();
  for (const NeedleInfo& prompt : needles.prompts) {
    json["prompts"].push_back({{"id", prompt.id},
                               {"length", prompt.length},
                               {"depth", prompt.depth},
                               {"candidates", prompt.num_candidates}});
  }
  json["lengths"] = needles.lengths;
  json["depth_bins"] = kDepthBins;
  json["totals"] = needles.totals;
  json["rows"] = Json::array();
  json["scores"] = Json::array();
  for (size_t r = 0; r < needles.rows.size(); ++r) {
    if (!needles.rows[r].has_value()) {
      continue;
    }
    Json row = ToJson(*needles.rows[r]);
    row["row"] = r;
    json["rows"].push_back(std::move(row));
    Json prompts = Json::array();
    for (size_t i = 0; i < needles.prompts.size(); ++i) {
      prompts.push_back(ToJson(needles.scores[r][i], needles.prompts[i], needles.is_text));
    }
    json["scores"].push_back({{"row", r}, {"prompts", std::move(prompts)}});
  }
  return json;
}

}  // namespace

std::string JsonText(const EvalReport& report) {
  Json json;
  json["schema"] = "headroom-eval/1";
  json["settings"] = ToJson(report.settings);
  json["rows"] = Json::array();
  for (const EvalRow& row : report.rows) {
    json["rows"].push_back(ToJson(row));
  }
  json["fidelity"] = report.fidelity.has_value() ? ToJson(*report.fidelity) : Json(nullptr);
  json["needles"] = Json::array();
  for (const NeedleReport& needles : report.needles) {
    json["needles"].push_back(ToJson(needles));
  }
  return json.dump(1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

}  // namespace headroom::profiler
