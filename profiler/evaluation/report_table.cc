#include <algorithm>

#include "profiler/evaluation/report.h"
#include "profiler/evaluation/text_table.h"

namespace headroom::profiler {
namespace {

std::string WithInterval(const Interval& interval, int digits) {
  return fmt::format("{:+.{}f} [{:+.{}f}, {:+.{}f}]", interval.value, digits, interval.low, digits,
                     interval.high, digits);
}

std::string Percent(const std::optional<Interval>& share) {
  return share.has_value() ? fmt::format("{:.1f}", 100.0 * share->value) : "-";
}

std::string Header(const EvalReport& report) {
  const EvalSettings& settings = report.settings;
  return fmt::format(
      "model {} ({}): {} layers, {} KV heads of {}, group {}, TSP layer {}; reference: {}\n",
      settings.model, settings.backend, settings.num_layers, settings.num_kv_heads,
      settings.head_dim, settings.group_size, settings.tsp_layer, RowLabel(report.rows.front()));
}

void AddBudgetCells(const EvalRow& row, std::vector<std::string>* cells) {
  cells->push_back(row.policy);
  cells->push_back(row.theta_ppm.has_value() ? "th " + PpmText(*row.theta_ppm)
                                             : PpmText(row.retention_ppm));
  cells->push_back(PpmText(row.tsp_ppm));
  cells->push_back(DTypeName(row.kv_dtype));
}

std::string GroupTable(const EvalReport& report, const FidelityGroup& group) {
  std::string text = fmt::format(
      "\nFidelity: {} documents of {}, {} tokens scored each, {} key tokens in all, reference "
      "perplexity {:.3f}\n",
      group.documents.size(),
      group.num_tokens == 0 ? "all lengths" : fmt::format("{} tokens", group.num_tokens),
      report.fidelity->continuation_tokens - 1, group.num_key_tokens, group.full_ppl);
  TextTable table({"policy", "rho", "tau", "KV", "KiB", "% full", "dNLL [95 %]", "PPL ratio",
                   "KL mean", "KL p99", "top-1 %", "key dNLL", "key top-1 %"});
  for (size_t r = 0; r < report.rows.size(); ++r) {
    if (!group.rows[r].has_value()) {
      continue;
    }
    const FidelitySummary& row = *group.rows[r];
    std::vector<std::string> cells;
    AddBudgetCells(report.rows[r], &cells);
    cells.push_back(fmt::format("{:.0f}", row.physical_bytes / 1024.0));
    cells.push_back(fmt::format("{:.1f}", 100.0 * row.physical_share));
    cells.push_back(WithInterval(row.delta_nll, 4));
    cells.push_back(fmt::format("{:.4f}", row.ppl_ratio.value));
    cells.push_back(fmt::format("{:.5f}", row.mean_kl.value));
    cells.push_back(fmt::format("{:.4f}", row.p99_kl.value));
    cells.push_back(Percent(row.top1));
    cells.push_back(row.key_delta_nll.has_value() ? WithInterval(*row.key_delta_nll, 3) : "-");
    cells.push_back(Percent(row.key_top1));
    table.Add(std::move(cells));
  }
  return text + table.Text();
}

std::string NeedleTable(const EvalReport& report, const NeedleReport& needles) {
  std::string text = fmt::format(
      "\nNeedles: {}, {} prompts, question {}\n", needles.task, needles.prompts.size(),
      needles.protocol == Protocol::kAware ? "in the compressed prompt (aware)"
                                           : "fed behind the compressed context (agnostic)");
  TextTable table({"policy", "rho", "tau", "KV", "KiB", "% full", "right % [95 %]",
                   "vs reference [95 %]", "p", "p Holm", "after 1st %", "rank 1 %", "MRR",
                   "margin"});
  const auto percent = [](const Interval& share) {
    return fmt::format("{:.1f} [{:.1f}, {:.1f}]", 100.0 * share.value, 100.0 * share.low,
                       100.0 * share.high);
  };
  const auto number = [](const std::optional<Interval>& value) {
    return value.has_value() ? fmt::format("{:.3f}", value->value) : "-";
  };
  for (size_t r = 0; r < report.rows.size(); ++r) {
    if (!needles.rows[r].has_value()) {
      continue;
    }
    const NeedleSummary& row = *needles.rows[r];
    std::vector<std::string> cells;
    AddBudgetCells(report.rows[r], &cells);
    cells.push_back(fmt::format("{:.0f}", row.physical_bytes / 1024.0));
    cells.push_back(fmt::format("{:.1f}", 100.0 * row.physical_share));
    cells.push_back(percent(row.right));
    cells.push_back(fmt::format("{:+.1f} [{:+.1f}, {:+.1f}]", 100.0 * row.difference.value,
                                100.0 * row.difference.low, 100.0 * row.difference.high));
    cells.push_back(fmt::format("{:.3f}", row.mcnemar_p));
    cells.push_back(fmt::format("{:.3f}", row.holm_p));
    cells.push_back(Percent(row.right_after_first));
    cells.push_back(Percent(row.rank_accuracy));
    cells.push_back(number(row.reciprocal_rank));
    cells.push_back(number(row.margin));
    table.Add(std::move(cells));
  }
  return text + table.Text();
}

std::string Refusals(const EvalReport& report) {
  // Rows of one policy that are refused for the same reason share a line.
  std::vector<std::pair<const EvalRow*, std::string>> lines;
  for (const EvalRow& row : report.rows) {
    if (row.runs()) {
      continue;
    }
    const std::string budget = fmt::format("{}; {}", BudgetText(row), DTypeName(row.kv_dtype));
    const auto same = std::find_if(lines.begin(), lines.end(), [&](const auto& line) {
      return line.first->policy == row.policy && line.first->refusal == row.refusal;
    });
    if (same == lines.end()) {
      lines.emplace_back(&row, budget);
    } else {
      same->second += " | " + budget;
    }
  }
  std::string text;
  for (const auto& [row, budgets] : lines) {
    text += fmt::format("  {} ({}): {}\n", row->policy, budgets, row->refusal);
  }
  return text.empty() ? text : "\nRefused:\n" + text;
}

}  // namespace

std::string TableText(const EvalReport& report) {
  std::string text = Header(report);
  if (report.fidelity.has_value()) {
    for (const FidelityGroup& group : report.fidelity->groups) {
      text += GroupTable(report, group);
    }
    text +=
        "dNLL: nats a token above the reference; bytes: pages held after prefill, a document.\n";
  }
  for (const NeedleReport& needles : report.needles) {
    text += NeedleTable(report, needles);
  }
  return text + Refusals(report);
}

}  // namespace headroom::profiler
