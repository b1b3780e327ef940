#include <algorithm>
#include <array>
#include <numeric>
#include <utility>
#include <vector>

#include "profiler/evaluation/eval_row.h"
#include "profiler/evaluation/text_table.h"
#include "profiler/profile_report.h"
#include "profiler/profile_summary.h"

namespace headroom::profiler {
namespace {

using engine::HeadEntry;
using engine::HeadMap;

constexpr size_t kMostProbed = 16;
constexpr char kLetters[] = "SPLHD";

std::string Percent(int64_t ppm, int digits = 1) {
  return fmt::format("{:.{}f}", static_cast<double>(ppm) / 1e4, digits);
}
std::string Nats(int64_t ppm) { return fmt::format("{:+.4f}", static_cast<double>(ppm) / 1e6); }
std::string Measured(int64_t ppm) { return ppm < 0 ? "-" : Percent(ppm); }

std::string Head(const ProfileReport& report) {
  const HeadMap& map = report.map;
  int64_t tokens = 0;
  for (const engine::MapCorpus& part : map.profile.corpus) {
    tokens += part.tokens;
  }
  std::string text = fmt::format(
      "model {}: {} layers, {} KV heads, group {}; ladder {}, classifier {}, theta {}\n"
      "{} prompts, {} tokens, {} on average ({} special, {} punctuation){}\n",
      map.model.name, map.model.num_layers, map.model.num_kv_heads,
      map.model.num_query_heads / map.model.num_kv_heads, map.profile.ladder,
      map.profile.classifier, PpmText(map.profile.theta_ppm), report.notes.num_prompts, tokens,
      map.profile.reference_tokens, map.profile.reference_special,
      map.profile.reference_punctuation,
      report.notes.num_prompts_left == 0
          ? ""
          : fmt::format("; {} prompts were not needed, the types had settled",
                        report.notes.num_prompts_left));
  return text;
}

std::string Grid(const HeadMap& map) {
  std::string text =
      "\nHeads by layer (S special, P punct, L local, H heavy, D dense; ? borderline)\n";
  for (int32_t layer = 0; layer < map.model.num_layers; ++layer) {
    std::string line = fmt::format("{:>4}  ", layer);
    for (int32_t kv_head = 0; kv_head < map.model.num_kv_heads; ++kv_head) {
      const HeadEntry& head = map.head(layer, kv_head);
      line += kLetters[static_cast<size_t>(head.type)];
      line += head.borderline ? "? " : "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    if (layer == map.tsp.layer) {
      line += "   <- TSP layer";
    }
    text += line + "\n";
  }
  return text;
}

std::string Counts(const ProfileReport& report) {
  TextTable table({"type", "heads", "%", "published %", "paper's rule", "without probes"});
  const ProfileNotes& notes = report.notes;
  const TypeCounts now = CountTypes(report.map.heads);
  for (int32_t type = 0; type < engine::kNumHeadTypes; ++type) {
    const auto at = static_cast<size_t>(type);
    const auto as_type = static_cast<engine::HeadType>(type);
    const int64_t promoted =
        std::count(notes.classification.promoted.begin(), notes.classification.promoted.end(), 1);
    table.Add({engine::HeadTypeName(as_type), fmt::format("{}", now[at]),
               Percent(now[at] * 1'000'000 / static_cast<int64_t>(report.map.heads.size())),
               TypicalShare(as_type),
               notes.classification.paper_types.empty()
                   ? "-"
                   : fmt::format("{}", std::count(notes.classification.paper_types.begin(),
                                                  notes.classification.paper_types.end(), as_type)),
               as_type == engine::HeadType::kDense && !notes.classification.promoted.empty()
                   ? fmt::format("{}", now[at] - promoted)
                   : ""});
  }
  return "\n" + table.Text();
}

std::string Probed(const HeadMap& map) {
  const std::vector<size_t> order = ByProbeScore(map.heads);
  if (order.empty()) {
    return "\nNo head was probed.\n";
  }
  TextTable table({"layer.head", "probe", "copy", "induction", "type", "confidence", "margin"});
  for (size_t i = 0; i < std::min(order.size(), kMostProbed); ++i) {
    const HeadEntry& head = map.heads[order[i]];
    table.Add({HeadName(map, order[i]), PpmText(head.probe_ppm()), PpmText(head.copy_ppm),
               PpmText(head.induction_ppm), engine::HeadTypeName(head.type),
               Percent(head.confidence_ppm, 0), Nats(head.margin_ppm)});
  }
  return "\nHeads with the highest probe scores\n" + table.Text();
}

// A rung is chosen by means over rows: how single rows fare under it.
std::string LateRowsLine(const ProfileReport& report) {
  const std::vector<int64_t>& late = report.notes.classification.late_p10_ppm;
  std::vector<std::pair<int64_t, size_t>> heads;
  for (size_t i = 0; i < late.size(); ++i) {
    if (report.map.heads[i].type != engine::HeadType::kDense) {
      heads.emplace_back(late[i], i);
    }
  }
  if (heads.empty()) {
    return "";
  }
  std::sort(heads.begin(), heads.end());
  return fmt::format(
      "\nOf the last rows, one by one, nine in ten keep {} % or more under their head's rung "
      "(median of the heads that are not dense); the least is {} %, head {}\n",
      Percent(heads[heads.size() / 2].first), Percent(heads.front().first),
      HeadName(report.map, heads.front().second));
}

std::string TspTable(const HeadMap& map) {
  TextTable table({"TSP layer", "rows x layers %", "probe score above %", "dNLL", "seen %",
                   "unseen %", "chosen"});
  for (const engine::TspCandidate& candidate : map.tsp.candidates) {
    table.Add({fmt::format("{}", candidate.layer), Percent(candidate.row_layers_ppm),
               Percent(candidate.probe_above_ppm),
               candidate.validated ? Nats(candidate.delta_nll_ppm) : "-",
               Measured(candidate.seen_ppm), Measured(candidate.unseen_ppm),
               candidate.layer == map.tsp.layer ? "*" : ""});
  }
  return fmt::format("\nWhere TSP may cut (tau {})\n",
                     map.tsp.candidates.empty() ? "-" : PpmText(map.tsp.candidates[0].tsp_ppm)) +
         table.Text();
}

std::string Validation(const HeadMap& map) {
  const engine::MapValidation& validation = map.validation;
  std::string text = fmt::format("\nValidation: {}", validation.status);
  for (const std::string& reason : validation.reasons) {
    text += fmt::format("; {}", reason);
  }
  text += "\n";
  if (validation.rows.empty()) {
    return text;
  }
  TextTable table({"policy", "rho", "dense share", "local share", "entries %", "dNLL", "KL",
                   "top-1 %", "seen %", "unseen %"});
  for (const engine::ValidationRow& row : validation.rows) {
    const auto share = [](int64_t ppm) { return ppm < 0 ? std::string("-") : PpmText(ppm); };
    table.Add({row.policy, PpmText(row.retention_ppm), share(row.dense_share_ppm),
               share(row.local_share_ppm), Percent(row.entries_ppm), Nats(row.delta_nll_ppm),
               fmt::format("{:.4f}", static_cast<double>(row.kl_ppm) / 1e6), Percent(row.top1_ppm),
               Measured(row.seen_ppm), Measured(row.unseen_ppm)});
  }
  return text + table.Text();
}

}  // namespace

std::string TableText(const ProfileReport& report) {
  std::string text = Head(report) + Grid(report.map) + Counts(report) + LateRowsLine(report) +
                     Probed(report.map) + TspTable(report.map) + Validation(report.map);
  if (report.notes.clusters.num_clusters > 0) {
    text += fmt::format(
        "\nClusters: {}, silhouette {}, adjusted Rand index against threshold types {}\n",
        report.notes.clusters.num_clusters, Nats(report.notes.clusters.silhouette_ppm),
        Nats(report.notes.clusters.rand_ppm));
  }
  for (const std::string& warning : Warnings(report)) {
    text += fmt::format("warning: {}\n", warning);
  }
  return text;
}

}  // namespace headroom::profiler
