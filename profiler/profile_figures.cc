#include "profiler/profile_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "profiler/evaluation/eval_row.h"
#include "profiler/evaluation/html_text.h"
#include "profiler/profile_summary.h"
#include "profiler/svg_curves.h"
#include "profiler/svg_grid.h"

namespace headroom::profiler {
namespace {

using engine::HeadEntry;
using engine::HeadMap;
using engine::HeadType;

constexpr size_t kMostCurves = 6;

std::string TypeColour(HeadType type) { return fmt::format("var(--t{})", static_cast<int>(type)); }

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
      HeadName(map, index), engine::HeadTypeName(head.type), PercentText(head.confidence_ppm, 0),
      SignedText(head.margin_ppm), head.borderline ? ", borderline" : "", head.budget_tokens,
      PpmText(head.budget_ppm), PpmText(head.probe_ppm()), PercentText(head.masses_ppm[0]),
      PercentText(head.masses_ppm[1]), PercentText(head.masses_ppm[2]),
      PercentText(head.masses_ppm[3]), PercentText(head.masses_ppm[4]));
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

}  // namespace

std::string PercentText(int64_t ppm, int digits) {
  return fmt::format("{:.{}f}", static_cast<double>(ppm) / 1e4, digits);
}
std::string ShareText(int64_t ppm) { return ppm < 0 ? "-" : PercentText(ppm); }
std::string SignedText(int64_t ppm) {
  return fmt::format("{:+.4f}", static_cast<double>(ppm) / 1e6);
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
                                         candidate.layer, PercentText(candidate.probe_above_ppm)));
    rows.points.emplace_back(layer, static_cast<double>(candidate.row_layers_ppm) / 1e6);
    rows.tooltips.push_back(fmt::format("layer {}: {} % of rows x layers", candidate.layer,
                                        PercentText(candidate.row_layers_ppm)));
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
        curve.tooltips.push_back(fmt::format("{}: {:g} keeps {} %", HeadName(map, index), x,
                                             PercentText(point.mass_ppm)));
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

std::string ValidationLabel(const engine::ValidationRow& row) {
  std::string label = fmt::format("{} rho {}", row.policy, PpmText(row.retention_ppm));
  if (row.dense_share_ppm >= 0) {
    label += fmt::format(", dense {}", PpmText(row.dense_share_ppm));
  }
  if (row.local_share_ppm >= 0) {
    label += fmt::format(", local {}", PpmText(row.local_share_ppm));
  }
  return label;
}

int64_t AnswersOf(const engine::ValidationRow& row, bool is_seen) {
  return is_seen ? row.seen_ppm : row.unseen_ppm;
}

// The splits at one retention: a line through those that no other beats in both, dots for the rest.
void AddFront(std::vector<const engine::ValidationRow*> rows, bool is_seen, const std::string& name,
              const std::string& colour, std::vector<Curve>* curves) {
  // Of equal losses the one with the most answers comes first: the others are beaten.
  std::stable_sort(rows.begin(), rows.end(), [is_seen](const auto* a, const auto* b) {
    return std::pair(a->delta_nll_ppm, -AnswersOf(*a, is_seen)) <
           std::pair(b->delta_nll_ppm, -AnswersOf(*b, is_seen));
  });
  Curve best{.name = name, .colour = colour};
  Curve beaten{.name = "", .colour = colour, .has_line = false};
  int64_t most = -1;
  for (const engine::ValidationRow* row : rows) {
    const int64_t share = AnswersOf(*row, is_seen);
    Curve& curve = share > most ? best : beaten;
    most = std::max(most, share);
    curve.points.emplace_back(static_cast<double>(row->delta_nll_ppm) / 1e6,
                              static_cast<double>(share) / 1e6);
    curve.tooltips.push_back(fmt::format("{}: {} % answered, delta NLL {}", ValidationLabel(*row),
                                         PercentText(share), SignedText(row->delta_nll_ppm)));
  }
  curves->push_back(std::move(best));
  curves->push_back(std::move(beaten));
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
      std::vector<const engine::ValidationRow*> rows;
      for (const engine::ValidationRow& row : front) {
        if (row.retention_ppm == retention && AnswersOf(row, is_seen) >= 0) {
          rows.push_back(&row);
        }
      }
      AddFront(std::move(rows), is_seen, fmt::format("rho {}", PpmText(retention)),
               fmt::format("var(--t{})", (style++ + 1) % 5), &plot.curves);
    }
    text += "<figure>" + SvgCurves(plot) + "</figure>";
  }
  return text +
         "</div>\n<p>Every point is a split of the budget between dense heads, local windows "
         "and scores; no other one at its retention beats a point on a line in both.</p>\n";
}

}  // namespace headroom::profiler
