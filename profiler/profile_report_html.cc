#include <algorithm>

#include "profiler/evaluation/eval_row.h"
#include "profiler/evaluation/html_text.h"
#include "profiler/profile_figures.h"
#include "profiler/profile_report.h"
#include "profiler/profile_summary.h"

namespace headroom::profiler {
namespace {

using engine::HeadEntry;
using engine::HeadMap;
using engine::HeadType;

constexpr size_t kMostListed = 24;

// Colours that stay apart for colour-blind readers (Okabe and Ito), lighter on dark ground.
constexpr const char* kStyle = R"(
:root { --bg: #ffffff; --fg: #1c1f24; --dim: #5b6470; --grid: #dfe3e8; --in: #ffffff;
  --t0: #8a929c; --t1: #c98a00; --t2: #2a86b8; --t3: #00805c; --t4: #c04f00; --warn: #a03030; }
@media (prefers-color-scheme: dark) { :root { --bg: #15181c; --fg: #e8eaed; --dim: #a3abb6;
  --grid: #343a42; --in: #10141a; --t0: #9aa3ad; --t1: #e8b84a; --t2: #6cb8ec; --t3: #3fcf9f;
  --t4: #ff9a57; --warn: #ff9c9c; } }
* { box-sizing: border-box; }
body { background: var(--bg); color: var(--fg); max-width: 64rem; margin: 2rem auto;
  padding: 0 1rem; font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
p, figcaption { color: var(--dim); } figure { margin: 1rem 0; } li.warn { color: var(--warn); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px; }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid var(--grid);
  white-space: nowrap; }
th:nth-child(1), td:nth-child(1) { text-align: left; }
svg { max-width: 100%; height: auto; display: block; }
svg text { fill: var(--fg); font: 12px system-ui, sans-serif; }
svg text.tick { fill: var(--dim); font-size: 11px; }
svg text.in { fill: var(--fg); font-size: 11px; font-weight: 600; paint-order: stroke;
  stroke: var(--bg); stroke-width: 2.5px; stroke-opacity: .55; }
.grid { stroke: var(--grid); fill: none; }
.line { fill: none; stroke: currentColor; stroke-width: 1.8; } .dot { fill: currentColor; }
.rule { stroke: var(--fg); stroke-width: 1.5; stroke-dasharray: 3 3; fill: none; }
.cell { stroke: var(--grid); } .marked { stroke: var(--fg); stroke-width: 1.6; }
.pair { display: flex; flex-wrap: wrap; gap: 1.2rem; } .pair figure { margin: 0; }
.key { display: inline-block; width: .8em; height: .8em; margin: 0 .3em 0 .9em; }
)";

std::string HtmlRow(const char* tag, const std::vector<std::string>& cells) {
  std::string row = "<tr>";
  for (const std::string& cell : cells) {
    row += fmt::format("<{0}>{1}</{0}>", tag, EscapeHtml(cell));
  }
  return row + "</tr>\n";
}

std::string HtmlTable(const std::vector<std::string>& header,
                      const std::vector<std::vector<std::string>>& rows) {
  std::string text =
      "<div class=\"scroll\"><table>\n<thead>" + HtmlRow("th", header) + "</thead>\n<tbody>\n";
  for (const std::vector<std::string>& row : rows) {
    text += HtmlRow("td", row);
  }
  return text + "</tbody></table></div>\n";
}

std::string Types(const ProfileReport& report) {
  std::vector<std::vector<std::string>> rows;
  const TypeCounts counts = CountTypes(report.map.heads);
  const auto& notes = report.notes.classification;
  for (int32_t type = 0; type < engine::kNumHeadTypes; ++type) {
    const auto as_type = static_cast<HeadType>(type);
    const int64_t count = counts[static_cast<size_t>(type)];
    const auto paper = std::count(notes.paper_types.begin(), notes.paper_types.end(), as_type);
    rows.push_back({engine::HeadTypeName(as_type), fmt::format("{}", count),
                    PercentText(count * 1'000'000 / static_cast<int64_t>(report.map.heads.size())),
                    TypicalShare(as_type),
                    notes.paper_types.empty() ? "-" : fmt::format("{}", paper)});
  }
  return "<h2>Shares</h2>\n" +
         HtmlTable({"type", "heads", "%", "published %", "heads by the paper's statistic"}, rows) +
         "<p>Published: typical ranges in popular descriptions of FastGen, for four types; its "
         "paper "
         "gives none, and no measurement of this program stands behind them.</p>\n";
}

std::string Tsp(const HeadMap& map) {
  std::vector<std::vector<std::string>> rows;
  for (const engine::TspCandidate& candidate : map.tsp.candidates) {
    rows.push_back(
        {fmt::format("{}{}", candidate.layer, candidate.layer == map.tsp.layer ? " (chosen)" : ""),
         PpmText(candidate.tsp_ppm), PercentText(candidate.row_layers_ppm),
         PercentText(candidate.probe_above_ppm),
         candidate.validated ? SignedText(candidate.delta_nll_ppm) : "-",
         ShareText(candidate.seen_ppm), ShareText(candidate.unseen_ppm)});
  }
  const std::string loss = TspLoss(map);
  return "<h2>The TSP layer</h2>\n<p>All rows run up to it, a share tau above it. Cutting low "
         "saves "
         "more and hides tokens from every head above the cut.</p>\n<div class=\"pair\"><figure>" +
         TspCurves(map) + "</figure>" + (loss.empty() ? "" : "<figure>" + loss + "</figure>") +
         "</div>\n" +
         HtmlTable({"layer", "tau", "rows x layers %", "probe score above %", "delta NLL", "seen %",
                    "unseen %"},
                   rows);
}

std::string Domains(const HeadMap& map) {
  const std::vector<size_t> flips = DomainFlips(map.heads);
  if (map.heads.front().per_domain.size() < 2) {
    return "";
  }
  std::string text = fmt::format(
      "<h2>Domains</h2>\n<p>{} of {} heads have another type in another "
      "domain; the map takes what the worst one needs.</p>\n",
      flips.size(), map.heads.size());
  std::vector<std::string> header = {"head", "map"};
  for (const auto& [domain, type] : map.heads.front().per_domain) {
    header.push_back(domain);
  }
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < std::min(flips.size(), kMostListed); ++i) {
    const HeadEntry& head = map.heads[flips[i]];
    std::vector<std::string> row = {HeadName(map, flips[i]), engine::HeadTypeName(head.type)};
    for (const auto& [domain, type] : head.per_domain) {
      row.push_back(engine::HeadTypeName(type));
    }
    rows.push_back(std::move(row));
  }
  return flips.empty() ? text : text + HtmlTable(header, rows);
}

std::string Spend(const HeadMap& map) {
  std::vector<std::vector<std::string>> rows;
  for (const engine::SpendPlan& plan : map.spend) {
    std::string points;
    for (const engine::SpendPoint& point : plan.points) {
      points += fmt::format("{}{} from rho {}", points.empty() ? "" : ", ",
                            PpmText(point.dense_share_ppm), PpmText(point.retention_ppm));
    }
    rows.push_back({plan.prefer, points, PpmText(plan.local_share_ppm),
                    plan.layers_by_demand ? "demand" : "number of heads"});
  }
  return HtmlTable({"preference", "share of dense heads", "local share", "layers by"}, rows);
}

std::string Validation(const HeadMap& map) {
  const engine::MapValidation& validation = map.validation;
  std::string text = fmt::format("<h2>Validation: {}</h2>\n", EscapeHtml(validation.status));
  if (!validation.reasons.empty()) {
    text += "<ul>\n";
    for (const std::string& reason : validation.reasons) {
      text += fmt::format("<li>{}</li>\n", EscapeHtml(reason));
    }
    text += "</ul>\n";
  }
  if (!validation.rows.empty()) {
    text += fmt::format("<p>{} held-out documents, {} needle prompts.</p>\n", validation.documents,
                        validation.needles);
    std::vector<std::vector<std::string>> rows;
    for (const engine::ValidationRow& row : validation.rows) {
      rows.push_back(
          {ValidationLabel(row), PercentText(row.entries_ppm), SignedText(row.delta_nll_ppm),
           fmt::format("{:.5f}", static_cast<double>(row.kl_ppm) / 1e6),
           fmt::format("{:.4f}", static_cast<double>(row.p99_kl_ppm) / 1e6),
           PercentText(row.top1_ppm), ShareText(row.seen_ppm), ShareText(row.unseen_ppm)});
    }
    text += HtmlTable({"policy and budget", "entries %", "delta NLL", "KL mean", "KL p99",
                       "top-1 %", "seen %", "unseen %"},
                      rows);
  }
  return text + Front(map) + Spend(map);
}

std::string WarningList(const ProfileReport& report) {
  std::string items;
  for (const std::string& warning : Warnings(report)) {
    items += fmt::format("<li class=\"warn\">{}</li>\n", EscapeHtml(warning));
  }
  return items.empty() ? "" : "<ul>\n" + items + "</ul>\n";
}

std::string Corpus(const HeadMap& map) {
  std::vector<std::vector<std::string>> rows;
  for (const auto* parts : {&map.profile.corpus, &map.profile.probes}) {
    for (const engine::MapCorpus& part : *parts) {
      rows.push_back({(parts == &map.profile.probes ? "probe: " : "") + part.domain,
                      fmt::format("{}", part.prompts), fmt::format("{}", part.tokens),
                      part.hash.substr(0, 19)});
    }
  }
  return "<h2>Prompts</h2>\n" + HtmlTable({"domain", "prompts", "tokens", "hash"}, rows);
}

}  // namespace

std::string HtmlText(const ProfileReport& report) {
  const HeadMap& map = report.map;
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\"><head>"
      "<meta charset=\"utf-8\"/><meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\"/>\n<title>headroom profile: "
      "{0}</title>\n<style>{1}</style></head>\n<body>\n"
      "<h1>Head map of {0}</h1>\n<p>{2} layers, {3} KV heads, query group {4}; ladder {5}, "
      "classifier {6}, theta {7}; backend {8}, KV {9}; {10} prompts of {11} tokens on average, "
      "seed "
      "{12}.</p>\n",
      EscapeHtml(map.model.name), kStyle, map.model.num_layers, map.model.num_kv_heads,
      map.model.num_query_heads / map.model.num_kv_heads, EscapeHtml(map.profile.ladder),
      EscapeHtml(map.profile.classifier), PpmText(map.profile.theta_ppm),
      EscapeHtml(map.profile.backend), EscapeHtml(map.profile.kv_dtype), report.notes.num_prompts,
      map.profile.reference_tokens, map.profile.seed);
  html += WarningList(report) + TypeGrid(map) + Types(report) + ProbeGrid(map) + BudgetGrid(map) +
          Tsp(map) + RecoveryCurves(map) + Domains(map) + Validation(map) + Corpus(map);
  return html + "</body></html>\n";
}

}  // namespace headroom::profiler
