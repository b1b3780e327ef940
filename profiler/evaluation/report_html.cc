#include <algorithm>
#include <map>
#include <tuple>

#include "profiler/evaluation/html_text.h"
#include "profiler/evaluation/report.h"
#include "profiler/evaluation/svg_heat_map.h"
#include "profiler/evaluation/svg_plot.h"

namespace headroom::profiler {
namespace {

// Colours that stay apart for colour-blind readers (Okabe and Ito), lighter on dark ground.
constexpr const char* kStyle = R"(
:root { --bg: #ffffff; --fg: #1c1f24; --dim: #5b6470; --grid: #dfe3e8; --heat: #20639b; --on: #fff;
  --c0: #4a4f57; --c1: #0072b2; --c2: #c04f00; --c3: #00805c; --c4: #a8527f; --c5: #9a6a00;
  --c6: #2a86b8; --c7: #6b4fb3; }
@media (prefers-color-scheme: dark) { :root { --bg: #15181c; --fg: #e8eaed; --dim: #a3abb6;
  --grid: #343a42; --heat: #6cb2eb; --on: #10141a; --c0: #c4cad2; --c1: #4fb3ec; --c2: #ff9a57;
  --c3: #3fcf9f; --c4: #e59ac2; --c5: #e8b84a; --c6: #8fd0f5; --c7: #b9a3f5; } }
* { box-sizing: border-box; }
body { background: var(--bg); color: var(--fg); max-width: 62rem; margin: 2rem auto;
  padding: 0 1rem; font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
p, figcaption { color: var(--dim); } figure { margin: 1rem 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px; }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid var(--grid);
  white-space: nowrap; }
th:nth-child(2), td:nth-child(2) { text-align: left; }
svg { max-width: 100%; height: auto; display: block; }
svg text { fill: var(--fg); font: 12px system-ui, sans-serif; }
svg text.tick { fill: var(--dim); } svg text.on { fill: var(--on); }
svg text.mark { font-size: 11px; paint-order: stroke; stroke: var(--bg); stroke-width: 3px; }
.grid { stroke: var(--grid); } .line { fill: none; stroke: currentColor; stroke-width: 1.5; }
.whisker { stroke: currentColor; stroke-opacity: .45; }
g[class^="c"] { fill: currentColor; stroke: currentColor; stroke-width: 1.5; }
g.hollow { fill: var(--bg); }
.c0 { color: var(--c0); } .c1 { color: var(--c1); } .c2 { color: var(--c2); }
.c3 { color: var(--c3); } .c4 { color: var(--c4); } .c5 { color: var(--c5); }
.c6 { color: var(--c6); } .c7 { color: var(--c7); }
.heat { fill: var(--heat); stroke: var(--grid); } .empty { fill: none; stroke: var(--grid); }
.maps { display: flex; flex-wrap: wrap; gap: 1.2rem; } .maps figure { margin: 0; }
)";

std::string Number(const Interval& interval, int digits) {
  return fmt::format("{:+.{}f} [{:+.{}f}, {:+.{}f}]", interval.value, digits, interval.low, digits,
                     interval.high, digits);
}
std::string Percent(const Interval& share) {
  return fmt::format("{:.1f} [{:.1f}, {:.1f}]", 100.0 * share.value, 100.0 * share.low,
                     100.0 * share.high);
}
std::string PercentOf(const std::optional<Interval>& share) {
  return share.has_value() ? Percent(*share) : "-";
}

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

// Sorts rows into series: a policy with its tsp ratio and KV type is one line over its budgets.
class SeriesBuilder {
 public:
  explicit SeriesBuilder(const EvalReport& report) : report_(report) {
    for (const EvalRow& row : report.rows) {
      styles_.emplace(row.policy, static_cast<int32_t>(styles_.size()));
      dashes_.emplace(row.kv_dtype, static_cast<int32_t>(dashes_.size()));
    }
  }

  void Add(size_t index, double share, const Interval& y, const std::string& what,
           std::vector<PlotSeries>* series) const {
    const EvalRow& row = report_.rows[index];
    std::string name = row.policy;
    if (row.tsp_ppm != engine::kPpm) {
      name += fmt::format(", tau {}", PpmText(row.tsp_ppm));
    }
    name += ", " + DTypeName(row.kv_dtype);
    auto found = std::find_if(series->begin(), series->end(),
                              [&](const PlotSeries& each) { return each.name == name; });
    if (found == series->end()) {
      PlotSeries added;
      added.name = name;
      added.style = styles_.at(row.policy);
      added.hollow = row.tsp_ppm != engine::kPpm;
      added.dash = dashes_.at(row.kv_dtype);
      series->push_back(std::move(added));
      found = series->end() - 1;
    }
    found->points.push_back({.x = share,
                             .y = y,
                             .label = fmt::format("{}", index),
                             .tooltip = fmt::format("{}: {}", RowLabel(row), what)});
  }

 private:
  const EvalReport& report_;
  std::map<std::string, int32_t> styles_;
  std::map<kernels::KvDType, int32_t> dashes_;
};

std::vector<std::string> RowCells(const EvalReport& report, size_t index, double bytes,
                                  double nominal, double share) {
  const EvalRow& row = report.rows[index];
  const std::string budget = BudgetText(row);
  return {fmt::format("{}", index),
          row.policy,
          budget.empty() ? "-" : budget,
          DTypeName(row.kv_dtype),
          fmt::format("{:.0f}", bytes / 1024.0),
          fmt::format("{:.0f}", nominal / 1024.0),
          fmt::format("{:.1f}", 100.0 * share)};
}

std::string XLabel(const EvalReport& report) {
  return fmt::format("physical KV bytes after prefill, share of {}", RowLabel(report.rows.front()));
}

std::string GroupHtml(const EvalReport& report, const FidelityGroup& group) {
  const SeriesBuilder builder(report);
  Plot plot;
  plot.title = "Loss of likelihood against physical KV bytes";
  plot.x_label = XLabel(report);
  plot.y_label = "delta NLL, nats a token";
  std::vector<std::vector<std::string>> rows;
  for (size_t r = 0; r < report.rows.size(); ++r) {
    if (!group.rows[r].has_value()) {
      continue;
    }
    const FidelitySummary& row = *group.rows[r];
    builder.Add(r, row.physical_share, row.delta_nll,
                fmt::format("delta NLL {} at {:.1f} % of the bytes", Number(row.delta_nll, 4),
                            100.0 * row.physical_share),
                &plot.series);
    std::vector<std::string> cells =
        RowCells(report, r, row.physical_bytes, row.nominal_bytes, row.physical_share);
    for (std::string& cell : std::vector<std::string>{
             Number(row.delta_nll, 4), fmt::format("{:.4f}", row.ppl_ratio.value),
             fmt::format("{:.5f}", row.mean_kl.value), fmt::format("{:.4f}", row.p99_kl.value),
             Percent(row.top1),
             row.key_delta_nll.has_value() ? Number(*row.key_delta_nll, 3) : std::string("-"),
             PercentOf(row.key_top1)}) {
      cells.push_back(std::move(cell));
    }
    rows.push_back(std::move(cells));
  }
  return fmt::format(
             "<h2>Fidelity: {} documents of {}</h2>\n<p>{} tokens scored in each, {} key tokens in "
             "all, reference perplexity {:.3f}. Numbers in the plot are rows of the table; bars "
             "are 95 % intervals over documents.</p>\n<figure>",
             group.documents.size(),
             group.num_tokens == 0 ? "all lengths" : fmt::format("{} tokens", group.num_tokens),
             report.fidelity->continuation_tokens - 1, group.num_key_tokens, group.full_ppl) +
         SvgPlot(plot) + "</figure>\n" +
         HtmlTable({"#", "policy", "budget", "KV", "KiB", "nominal KiB", "% bytes", "delta NLL",
                    "PPL ratio", "KL mean", "KL p99", "top-1 %", "key delta NLL", "key top-1 %"},
                   rows);
}

std::string HeatMaps(const EvalReport& report, const NeedleReport& needles) {
  std::string text = "<div class=\"maps\">\n";
  for (size_t r = 0; r < report.rows.size(); ++r) {
    if (!needles.rows[r].has_value()) {
      continue;
    }
    HeatMap map;
    map.title = fmt::format("{}: right answers by depth and length", RowLabel(report.rows[r]));
    map.lengths = needles.lengths;
    map.right = needles.rows[r]->heat;
    map.totals = needles.totals;
    text += fmt::format("<figure>{}<figcaption>{} &#183; {}</figcaption></figure>\n",
                        SvgHeatMap(map), r, EscapeHtml(RowLabel(report.rows[r])));
  }
  return text + "</div>\n";
}

std::string NeedlesHtml(const EvalReport& report, const NeedleReport& needles) {
  const SeriesBuilder builder(report);
  const bool is_aware = needles.protocol == Protocol::kAware;
  Plot plot;
  plot.title = "Right answers against physical KV bytes";
  plot.x_label = XLabel(report);
  plot.y_label = "right answers";
  plot.y_is_share = true;
  std::vector<std::vector<std::string>> rows;
  for (size_t r = 0; r < report.rows.size(); ++r) {
    if (!needles.rows[r].has_value()) {
      continue;
    }
    const NeedleSummary& row = *needles.rows[r];
    builder.Add(r, row.physical_share, row.right,
                fmt::format("{} % right at {:.1f} % of the bytes", Percent(row.right),
                            100.0 * row.physical_share),
                &plot.series);
    std::vector<std::string> cells =
        RowCells(report, r, row.physical_bytes, row.nominal_bytes, row.physical_share);
    for (std::string& cell : std::vector<std::string>{
             Percent(row.right), PercentOf(row.right_after_first),
             fmt::format("{:+.1f} [{:+.1f}, {:+.1f}]", 100.0 * row.difference.value,
                         100.0 * row.difference.low, 100.0 * row.difference.high),
             fmt::format("{:.3f}", row.mcnemar_p), fmt::format("{:.3f}", row.holm_p),
             PercentOf(row.rank_accuracy),
             row.reciprocal_rank.has_value() ? fmt::format("{:.3f}", row.reciprocal_rank->value)
                                             : std::string("-"),
             row.margin.has_value() ? Number(*row.margin, 2) : std::string("-")}) {
      cells.push_back(std::move(cell));
    }
    rows.push_back(std::move(cells));
  }
  return fmt::format(
             "<h2>Needles: {}, question {}</h2>\n<p>{} prompts; {}. Bars are 95 % intervals over "
             "prompts.</p>\n<figure>",
             EscapeHtml(needles.task), is_aware ? "seen (aware)" : "unseen (agnostic)",
             needles.prompts.size(),
             is_aware ? "the question is in the prompt that is compressed"
                      : "the context is compressed, then the question is fed") +
         SvgPlot(plot) +
         "</figure>\n<p>Right answers by depth of the needle (down) and prompt "
         "length in tokens (across):</p>\n" +
         HeatMaps(report, needles) +
         HtmlTable({"#", "policy", "budget", "KV", "KiB", "nominal KiB", "% bytes", "right %",
                    "after first token %", "vs reference", "McNemar p", "Holm p", "ranked first %",
                    "MRR", "margin"},
                   rows);
}

std::string RefusalsHtml(const EvalReport& report) {
  std::string text;
  for (const EvalRow& row : report.rows) {
    if (!row.runs()) {
      text += fmt::format("<li>{}: {}</li>\n", EscapeHtml(RowLabel(row)), EscapeHtml(row.refusal));
    }
  }
  return text.empty() ? text : "<h2>Refused</h2>\n<ul>\n" + text + "</ul>\n";
}

}  // namespace

std::string HtmlText(const EvalReport& report) {
  const EvalSettings& settings = report.settings;
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\"><head>"
      "<meta charset=\"utf-8\"/><meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\"/>\n<title>headroom eval: {0}</title>\n<style>{1}</style></head>\n<body>\n"
      "<h1>Quality under KV compression: {0}</h1>\n<p>{2} layers, {3} KV heads of {4}, query group "
      "{5}, TSP layer {6}, backend {7}. Reference: {8}. {9} bootstrap resamples, seed {10}.</p>\n",
      EscapeHtml(settings.model), kStyle, settings.num_layers, settings.num_kv_heads,
      settings.head_dim, settings.group_size, settings.tsp_layer, EscapeHtml(settings.backend),
      EscapeHtml(RowLabel(report.rows.front())), settings.num_resamples, settings.seed);
  if (report.fidelity.has_value()) {
    for (const FidelityGroup& group : report.fidelity->groups) {
      html += GroupHtml(report, group);
    }
  }
  for (const NeedleReport& needles : report.needles) {
    html += NeedlesHtml(report, needles);
  }
  return html + RefusalsHtml(report) + "</body></html>\n";
}

}  // namespace headroom::profiler
