#include <algorithm>
#include <cmath>
#include <set>

#include "profiler/evaluation/eval_row.h"
#include "profiler/evaluation/html_text.h"
#include "profiler/profile_report.h"
#include "profiler/profile_summary.h"
#include "profiler/svg_curves.h"
#include "profiler/svg_grid.h"

namespace headroom::profiler {
namespace {

using engine::HeadEntry;
using engine::HeadMap;
using engine::HeadType;

constexpr size_t kMostCurves = 6;
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

std::string TypeColour(HeadType type) { return fmt::format("var(--t{})", static_cast<int>(type)); }

std::string Percent(int64_t ppm, int digits = 1) {
  return fmt::format("{:.{}f}", static_cast<double>(ppm) / 1e4, digits);
}
std::string Share(int64_t ppm) { return ppm < 0 ? "-" : Percent(ppm); }
std::string Decimal(int64_t ppm) { return fmt::format("{:+.4f}", static_cast<double>(ppm) / 1e6); }

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

std::string Figure(const std::string& svg, const std::string& caption) {
  return "<figure><div class=\"scroll\">" + svg + "</div><figcaption>" + caption +
         "</figcaption></figure>\n";
}

// One cell per head, made by `fill_in`.
template <typename FillIn>
HeadGrid MakeGrid(const HeadMap& map, const std::string& title, FillIn fill_in) {
  HeadGrid grid;
  grid.title = title;
  grid.num_layers = map.model.num_layers;
  grid.num_heads = map.model.num_kv_heads;
  grid.ruled_layer = map.tsp.layer;
  for (size_t i = 0; i < map.heads.size(); ++i) {
    GridCell cell;
    fill_in(map.heads[i], i, &cell);
    grid.cells.push_back(std::move(cell));
  }
  return grid;
}

std::string Describe(const HeadMap& map, const HeadEntry& head, size_t index) {
  return fmt::format(
      "{}: {}, confidence {} %, margin {}{}; keeps {} + {} N; probe {}; late mass: sinks {} %, "
      "special {} %, punctuation {} %, last 64 {} %, rest {} %",
      HeadName(map, index), engine::HeadTypeName(head.type), Percent(head.confidence_ppm, 0),
      Decimal(head.margin_ppm), head.borderline ? ", borderline" : "", head.budget_tokens,
      PpmText(head.budget_ppm), PpmText(head.probe_ppm()), Percent(head.masses_ppm[0]),
      Percent(head.masses_ppm[1]), Percent(head.masses_ppm[2]), Percent(head.masses_ppm[3]),
      Percent(head.masses_ppm[4]));
}

std::string TypeGrid(const HeadMap& map) {
  const HeadGrid grid =
      MakeGrid(map, "Types of all KV heads", [&](const HeadEntry& head, size_t i, GridCell* cell) {
        constexpr char kLetters[] = "SPLHD";
        cell->fill = TypeColour(head.type);
        cell->opacity = 0.25 + 0.75 * static_cast<double>(head.confidence_ppm) / 1e6;
        cell->text = std::string(1, kLetters[static_cast<size_t>(head.type)]);
        cell->is_marked = head.borderline;
        for (const HeadType query : head.query_types) {
          cell->strips.push_back(TypeColour(query));
        }
        cell->tooltip = Describe(map, head, i);
      });
  std::string keys;
  for (int32_t type = 0; type < engine::kNumHeadTypes; ++type) {
    keys += fmt::format("<span class=\"key\" style=\"background:var(--t{})\"></span>{}", type,
                        engine::HeadTypeName(static_cast<HeadType>(type)));
  }
  return "<h2>Types</h2>\n" +
         Figure(
             SvgGrid(grid),
             "Strength of colour: confidence; outlined: borderline; strips: what each query head "
             "alone would need; dashed line: TSP cuts above this layer." +
                 keys);
}

std::string ProbeGrid(const HeadMap& map) {
  const HeadGrid grid =
      MakeGrid(map, "Probe scores", [&](const HeadEntry& head, size_t i, GridCell* cell) {
        const double score = static_cast<double>(head.probe_ppm()) / 1e6;
        cell->fill =
            TypeColour(head.copy_ppm >= head.induction_ppm ? HeadType::kDense : HeadType::kLocal);
        cell->opacity = score;
        cell->text = score >= 0.095 ? fmt::format("{:.0f}", score * 100.0) : "";
        cell->tooltip = fmt::format("{}: copy {}, induction {}", HeadName(map, i),
                                    PpmText(head.copy_ppm), PpmText(head.induction_ppm));
      });
  return "<h2>Probe scores</h2>\n" +
         Figure(
             SvgGrid(grid),
             "In hundredths. Orange: copying from needles; blue: induction over repeated blocks. "
             "Probes promote heads to dense, and order them when the budget is short.");
}

std::string BudgetGrid(const HeadMap& map) {
  const int64_t tokens = std::max<int64_t>(map.profile.reference_tokens, 1);
  const HeadGrid grid =
      MakeGrid(map, "Budgets", [&](const HeadEntry& head, size_t i, GridCell* cell) {
        const int64_t entries =
            std::min(tokens, head.budget_tokens + head.budget_ppm * tokens / 1'000'000);
        const double share = static_cast<double>(entries) / static_cast<double>(tokens);
        cell->fill = "var(--t3)";
        cell->opacity = share;
        cell->text = fmt::format("{:.0f}", 100.0 * share);
        cell->tooltip = fmt::format("{}: {} of {} tokens ({} + {} N)", HeadName(map, i), entries,
                                    tokens, head.budget_tokens, PpmText(head.budget_ppm));
      });
  return "<h2>What heads would keep to reach theta</h2>\n" +
         Figure(
             SvgGrid(grid),
             fmt::format("Percent of a prompt of {} tokens, the profile's mean length.", tokens));
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
                    Percent(count * 1'000'000 / static_cast<int64_t>(report.map.heads.size())),
                    TypicalShare(as_type),
                    notes.paper_types.empty() ? "-" : fmt::format("{}", paper)});
  }
  return "<h2>Shares</h2>\n" +
         HtmlTable({"type", "heads", "%", "published %", "heads by the paper's statistic"}, rows) +
         "<p>Published: typical ranges in popular descriptions of FastGen, for four types; its "
         "paper "
         "gives none, and no measurement of this program stands behind them.</p>\n";
}

// The curve of a layer's top tokens, and the probe score that lies above each layer.
std::string TspCurves(const HeadMap& map) {
  CurvePlot plot;
  plot.title = "Where top tokens freeze";
  plot.x_label = "layer";
  plot.y_label = "share";
  plot.x_high = std::max(1, map.model.num_layers - 1);
  plot.x_mark = map.tsp.layer;
  Curve overlap{.name = "top tokens kept above", .colour = "var(--t2)"};
  for (size_t layer = 0; layer < map.tsp.overlap_ppm.size(); ++layer) {
    const double share = static_cast<double>(map.tsp.overlap_ppm[layer]) / 1e6;
    overlap.points.emplace_back(static_cast<double>(layer), share);
    overlap.tooltips.push_back(fmt::format("layer {}: {:.1f} %", layer, 100.0 * share));
  }
  Curve above{.name = "probe score above", .colour = "var(--t4)", .is_dashed = true};
  Curve rows{.name = "rows x layers that run", .colour = "var(--t0)", .is_dashed = true};
  for (const engine::TspCandidate& candidate : map.tsp.candidates) {
    const double layer = candidate.layer;
    above.points.emplace_back(layer, static_cast<double>(candidate.probe_above_ppm) / 1e6);
    above.tooltips.push_back(fmt::format("layer {}: {} % of the probe score above it",
                                         candidate.layer, Percent(candidate.probe_above_ppm)));
    rows.points.emplace_back(layer, static_cast<double>(candidate.row_layers_ppm) / 1e6);
    rows.tooltips.push_back(fmt::format("layer {}: {} % of rows x layers", candidate.layer,
                                        Percent(candidate.row_layers_ppm)));
  }
  plot.curves = {overlap, above, rows};
  return SvgCurves(plot);
}

// Loss and answers of validated candidates; empty when there are none.
std::string TspLoss(const HeadMap& map) {
  CurvePlot plot;
  plot.title = "What each cut costs";
  plot.x_label = "layer";
  plot.y_label = "share of needles, delta NLL";
  plot.x_high = std::max(1, map.model.num_layers - 1);
  plot.x_mark = map.tsp.layer;
  Curve seen{.name = "answers, question seen", .colour = "var(--t3)"};
  Curve unseen{.name = "answers, unseen", .colour = "var(--t2)", .is_dashed = true};
  Curve loss{.name = "delta NLL, nats a token", .colour = "var(--t4)"};
  for (const engine::TspCandidate& candidate : map.tsp.candidates) {
    if (!candidate.validated) {
      continue;
    }
    const auto add = [&](int64_t ppm, const char* what, Curve* curve) {
      curve->points.emplace_back(candidate.layer, static_cast<double>(ppm) / 1e6);
      curve->tooltips.push_back(fmt::format("layer {}: {} {}", candidate.layer, what,
                                            fmt::format("{:.3f}", static_cast<double>(ppm) / 1e6)));
    };
    if (candidate.seen_ppm >= 0) {
      add(candidate.seen_ppm, "seen", &seen);
    }
    if (candidate.unseen_ppm >= 0) {
      add(candidate.unseen_ppm, "unseen", &unseen);
    }
    add(std::max<int64_t>(candidate.delta_nll_ppm, 0), "delta NLL", &loss);
  }
  plot.curves = {seen, unseen, loss};
  return loss.points.empty() ? "" : SvgCurves(plot);
}

std::string Tsp(const HeadMap& map) {
  std::vector<std::vector<std::string>> rows;
  for (const engine::TspCandidate& candidate : map.tsp.candidates) {
    rows.push_back(
        {fmt::format("{}{}", candidate.layer, candidate.layer == map.tsp.layer ? " (chosen)" : ""),
         PpmText(candidate.tsp_ppm), Percent(candidate.row_layers_ppm),
         Percent(candidate.probe_above_ppm),
         candidate.validated ? Decimal(candidate.delta_nll_ppm) : "-", Share(candidate.seen_ppm),
         Share(candidate.unseen_ppm)});
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

// Up to kMostCurves heads whose curves tell most: the strongest of each type, then by probe.
std::vector<size_t> CurveHeads(const HeadMap& map) {
  std::vector<size_t> chosen;
  const auto add = [&chosen](size_t index) {
    if (chosen.size() < kMostCurves &&
        std::find(chosen.begin(), chosen.end(), index) == chosen.end()) {
      chosen.push_back(index);
    }
  };
  for (int32_t type = 0; type < engine::kNumHeadTypes; ++type) {
    const HeadEntry* best = nullptr;
    size_t at = 0;
    for (size_t i = 0; i < map.heads.size(); ++i) {
      const HeadEntry& head = map.heads[i];
      if (head.type == static_cast<HeadType>(type) &&
          (best == nullptr || head.confidence_ppm > best->confidence_ppm)) {
        best = &head;
        at = i;
      }
    }
    if (best != nullptr) {
      add(at);
    }
  }
  for (const size_t index : ByProbeScore(map.heads)) {
    add(index);
  }
  return chosen;
}

std::string RecoveryCurves(const HeadMap& map) {
  CurvePlot local;
  local.title = "Kept mass of a window";
  local.x_label = "window, tokens (beside sinks and special)";
  local.y_label = "P10 of kept mass";
  local.x_is_log = true;
  local.x_low = 64;
  local.x_high = 128;
  local.y_mark = static_cast<double>(map.profile.theta_ppm) / 1e6;
  CurvePlot heavy = local;
  heavy.title = "Kept mass of the best columns";
  heavy.x_label = "share of columns kept by score (beside R1)";
  heavy.x_is_log = false;
  heavy.x_low = 0;
  heavy.x_high = 0.35;
  const std::vector<size_t> heads = CurveHeads(map);
  for (const size_t index : heads) {
    const HeadEntry& head = map.heads[index];
    const auto draw = [&](const std::vector<engine::CurvePoint>& points, double unit,
                          CurvePlot* plot) {
      Curve curve{
          .name = fmt::format("{} {}", HeadName(map, index), engine::HeadTypeName(head.type)),
          .colour = TypeColour(head.type),
          .is_dashed =
              head.type == HeadType::kDense && head.probe_ppm() >= map.profile.probe_threshold_ppm};
      for (const engine::CurvePoint& point : points) {
        const double x = static_cast<double>(point.size) * unit;
        if (unit < 1.0 && x > plot->x_high) {
          continue;
        }
        curve.points.emplace_back(x, static_cast<double>(point.mass_ppm) / 1e6);
        curve.tooltips.push_back(
            fmt::format("{}: {:g} keeps {} %", HeadName(map, index), x, Percent(point.mass_ppm)));
        if (unit >= 1.0) {
          plot->x_high = std::max(plot->x_high, x);
          plot->x_low = std::min(plot->x_low, x);
        }
      }
      plot->curves.push_back(std::move(curve));
    };
    draw(head.curve_local, 1.0, &local);
    draw(head.curve_heavy, 1e-6, &heavy);
  }
  return "<h2>Recovery of chosen heads</h2>\n<p>The most certain head of each type and the "
         "strongest probed ones (dashed). Horizontal line: theta.</p>\n<div "
         "class=\"pair\"><figure>" +
         SvgCurves(local) + "</figure><figure>" + SvgCurves(heavy) + "</figure></div>\n";
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

std::string RowLabelOf(const engine::ValidationRow& row) {
  std::string label = fmt::format("{} rho {}", row.policy, PpmText(row.retention_ppm));
  if (row.dense_share_ppm >= 0) {
    label += fmt::format(", dense {}", PpmText(row.dense_share_ppm));
  }
  if (row.local_share_ppm >= 0) {
    label += fmt::format(", local {}", PpmText(row.local_share_ppm));
  }
  return label;
}

// The swept splits: answers against loss, a curve for each retention.
std::string Front(const HeadMap& map) {
  const auto& front = map.validation.front;
  if (front.empty()) {
    return "";
  }
  double low = 0.0;
  double high = 1e-3;
  std::set<int64_t> retentions;
  for (const engine::ValidationRow& row : front) {
    low = std::min(low, static_cast<double>(row.delta_nll_ppm) / 1e6);
    high = std::max(high, static_cast<double>(row.delta_nll_ppm) / 1e6);
    retentions.insert(row.retention_ppm);
  }
  std::string text = "<div class=\"pair\">";
  for (const bool is_seen : {true, false}) {
    CurvePlot plot;
    plot.title = is_seen ? "Answers, question seen" : "Answers, question unseen";
    plot.x_label = "delta NLL, nats a token";
    plot.y_label = is_seen ? "answers, seen" : "answers, unseen";
    plot.x_low = low;
    plot.x_high = high * 1.05;
    int style = 0;
    for (const int64_t retention : retentions) {
      Curve curve{.name = fmt::format("rho {}", PpmText(retention)),
                  .colour = fmt::format("var(--t{})", (style++ + 1) % 5)};
      std::vector<const engine::ValidationRow*> rows;
      for (const engine::ValidationRow& row : front) {
        if (row.retention_ppm == retention && (is_seen ? row.seen_ppm : row.unseen_ppm) >= 0) {
          rows.push_back(&row);
        }
      }
      std::stable_sort(rows.begin(), rows.end(), [](const auto* a, const auto* b) {
        return a->delta_nll_ppm < b->delta_nll_ppm;
      });
      for (const engine::ValidationRow* row : rows) {
        const int64_t share = is_seen ? row->seen_ppm : row->unseen_ppm;
        curve.points.emplace_back(static_cast<double>(row->delta_nll_ppm) / 1e6,
                                  static_cast<double>(share) / 1e6);
        curve.tooltips.push_back(fmt::format("{}: {} % answered, delta NLL {}", RowLabelOf(*row),
                                             Percent(share), Decimal(row->delta_nll_ppm)));
      }
      plot.curves.push_back(std::move(curve));
    }
    text += "<figure>" + SvgCurves(plot) + "</figure>";
  }
  return text +
         "</div>\n<p>Every point is a split of the budget between dense heads, local windows "
         "and scores; the three preferences are points on these fronts.</p>\n";
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
      rows.push_back({RowLabelOf(row), Percent(row.entries_ppm), Decimal(row.delta_nll_ppm),
                      fmt::format("{:.5f}", static_cast<double>(row.kl_ppm) / 1e6),
                      fmt::format("{:.4f}", static_cast<double>(row.p99_kl_ppm) / 1e6),
                      Percent(row.top1_ppm), Share(row.seen_ppm), Share(row.unseen_ppm)});
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
