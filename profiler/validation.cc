#include "profiler/validation.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "engine/kv/policies/policies.h"
#include "engine/kv/policy.h"

namespace headroom::profiler {
namespace {

using engine::HeadMap;
using engine::kPpm;
using engine::ValidationRow;

constexpr char kBalanced[] = "balanced";

int64_t ToPpm(double value) { return std::llround(value * static_cast<double>(kPpm)); }

EvalRow MakeRow(const std::string& policy, int64_t retention_ppm, int64_t tsp_ppm,
                kernels::KvDType dtype) {
  EvalRow row;
  row.policy = policy;
  row.retention_ppm = retention_ppm;
  row.tsp_ppm = tsp_ppm;
  row.kv_dtype = dtype;
  row.spec.policy = policy;
  row.spec.retention_ppm = retention_ppm;
  row.spec.tsp_ppm = tsp_ppm;
  row.spec.min_prompt = 0;
  row.spec.tsp_min_prompt = 0;
  return row;
}

EvalRow SplitRow(int64_t retention_ppm, int64_t dense_ppm, int64_t local_ppm,
                 kernels::KvDType dtype) {
  EvalRow row = MakeRow("adaptive", retention_ppm, kPpm, dtype);
  row.spec.options.dense_share_ppm = dense_ppm;
  row.spec.options.local_share_ppm = local_ppm;
  return row;
}

// What one row did on all documents and needles.
struct Measured {
  double delta_nll = 0.0;
  double kl = 0.0;
  double p99_kl = 0.0;
  double top1 = 0.0;
  int64_t num_seen = -1;  // right answers; -1: none asked
  int64_t num_unseen = -1;
  double entries = 0.0;  // share of the reference's
};

double Share(int64_t right, int64_t of) {
  return right < 0 || of <= 0 ? -1.0 : static_cast<double>(right) / static_cast<double>(of);
}

// Passes progress on as a part of the whole.
class PartObserver final : public EvalObserver {
 public:
  PartObserver(EvalObserver& whole, int64_t done, int64_t total)
      : whole_(whole), done_(done), total_(total) {}
  void Progress(int64_t done, int64_t total, const std::string& what) override {
    whole_.Progress(done_ + done, std::max(total_, done_ + total), what);
  }
  void Finished(const std::string& unit, int64_t index, int64_t count) override {
    whole_.Finished(unit, index, count);
  }
  bool Cancelled() const override { return whole_.Cancelled(); }

 private:
  EvalObserver& whole_;
  const int64_t done_;
  const int64_t total_;
};

// Runs rows over the material; the first row is the reference.
class Meter {
 public:
  Meter(const EvalModel& model, const ValidationMaterial& material, EvalObserver& observer)
      : model_(model), material_(material), observer_(observer) {
    for (const Document& document : material.documents) {
      max_tokens_ = std::max(max_tokens_, static_cast<int32_t>(document.ids.size()));
    }
    for (const NeedleTask& task : material.tasks) {
      for (const NeedlePrompt& prompt : task.prompts) {
        max_tokens_ = std::max(max_tokens_, TokensNeeded(prompt, material.needles));
      }
    }
  }

  int64_t WorkOf(const std::vector<EvalRow>& rows) const {
    int64_t work = FidelityWork(material_.documents, rows);
    for (const NeedleTask& task : material_.tasks) {
      work += NeedleWork(task, material_.needles, rows);
    }
    return work;
  }
  void ExpectWork(int64_t work) { total_ += work; }

  // The rows under `policies`, with TSP above `tsp_layer`. The reference answers needles alike
  // however often it is asked: it may be left out of them.
  StatusOr<std::vector<Measured>> Measure(const std::vector<EvalRow>& rows,
                                          const engine::KvPolicyRegistry& policies,
                                          int32_t tsp_layer, bool asks_reference = true) {
    engine::KvModelShape shape = model_.shape;
    shape.tsp_layer = tsp_layer;
    const EvalModel model = {.model = model_.model,
                             .backend = model_.backend,
                             .policies = policies,
                             .clock = model_.clock,
                             .shape = shape,
                             .attention_scale = model_.attention_scale,
                             .max_rows = model_.max_rows,
                             .token_classes = model_.token_classes};
    HEADROOM_ASSIGN_OR_RETURN(const auto caches, CacheSet::Create(model, rows, max_tokens_));
    std::vector<Measured> measured(rows.size());
    if (!material_.documents.empty()) {
      HEADROOM_RETURN_IF_ERROR(MeasureDocuments(rows, *caches, measured));
    }
    std::vector<EvalRow> asked = rows;
    if (!asks_reference) {
      asked.front().refusal = "measured before";
    }
    for (const NeedleTask& task : material_.tasks) {
      PartObserver part(observer_, done_, total_);
      std::vector<NeedleReport> reports;
      HEADROOM_RETURN_IF_ERROR(
          MeasureNeedles(task, material_.needles, asked, *caches, part, &reports));
      for (const NeedleReport& report : reports) {
        AddNeedles(report, measured);
      }
      done_ += NeedleWork(task, material_.needles, asked);
    }
    return measured;
  }

 private:
  Status MeasureDocuments(const std::vector<EvalRow>& rows, CacheSet& caches,
                          std::vector<Measured>& measured) {
    PartObserver part(observer_, done_, total_);
    FidelityReport report;
    HEADROOM_RETURN_IF_ERROR(
        MeasureFidelity(material_.documents, material_.fidelity, rows, caches, part, &report));
    const auto count = static_cast<double>(material_.documents.size());
    for (size_t row = 0; row < rows.size(); ++row) {
      for (size_t i = 0; i < report.scores[row].size(); ++i) {
        const DocumentScore& score = report.scores[row][i];
        measured[row].delta_nll += score.delta_nll / count;
        measured[row].kl += score.mean_kl / count;
        measured[row].p99_kl += score.p99_kl / count;
        measured[row].top1 += score.top1 / count;
        measured[row].entries += static_cast<double>(score.cost.entries) /
                                 static_cast<double>(report.scores[0][i].cost.entries) / count;
      }
    }
    done_ += FidelityWork(material_.documents, rows);
    return OkStatus();
  }

  static void AddNeedles(const NeedleReport& report, std::vector<Measured>& measured) {
    for (size_t row = 0; row < report.scores.size(); ++row) {
      Measured& sum = measured[row];
      int64_t& right = report.protocol == Protocol::kAware ? sum.num_seen : sum.num_unseen;
      right = std::max<int64_t>(right, 0);
      for (const NeedleScore& score : report.scores[row]) {
        right += score.right ? 1 : 0;
      }
    }
  }

  const EvalModel& model_;
  const ValidationMaterial& material_;
  EvalObserver& observer_;
  int32_t max_tokens_ = 1;
  int64_t done_ = 0;
  int64_t total_ = 0;
};

ValidationRow ToRow(const EvalRow& row, const Measured& measured, const Measured& full) {
  ValidationRow out;
  out.policy = row.policy;
  out.retention_ppm = row.retention_ppm;
  out.dense_share_ppm = row.spec.options.dense_share_ppm.value_or(-1);
  out.local_share_ppm = row.spec.options.local_share_ppm.value_or(-1);
  out.entries_ppm = ToPpm(measured.entries);
  out.delta_nll_ppm = ToPpm(measured.delta_nll);
  out.kl_ppm = ToPpm(measured.kl);
  out.p99_kl_ppm = ToPpm(measured.p99_kl);
  out.top1_ppm = ToPpm(measured.top1);
  const double seen = Share(measured.num_seen, full.num_seen);
  const double unseen = Share(measured.num_unseen, full.num_unseen);
  out.seen_ppm = seen < 0.0 ? -1 : std::min(kPpm, ToPpm(seen));
  out.unseen_ppm = unseen < 0.0 ? -1 : std::min(kPpm, ToPpm(unseen));
  return out;
}

SplitResult ToSplit(const EvalRow& row, const Measured& measured, const Measured& full) {
  return {.retention_ppm = row.retention_ppm,
          .dense_share_ppm = *row.spec.options.dense_share_ppm,
          .local_share_ppm = *row.spec.options.local_share_ppm,
          .delta_nll = measured.delta_nll,
          .seen = Share(measured.num_seen, full.num_seen),
          .unseen = Share(measured.num_unseen, full.num_unseen)};
}

class Validator {
 public:
  Validator(const EvalModel& model, const ValidationMaterial& material,
            const ValidationOptions& options, EvalObserver& observer, HeadMap& map)
      : options_(options),
        tsp_layer_(model.shape.tsp_layer),
        meter_(model, material, observer),
        map_(map) {
    map_.validation = {};
    map_.validation.documents = static_cast<int32_t>(material.documents.size());
    for (const NeedleTask& task : material.tasks) {
      map_.validation.needles += static_cast<int32_t>(task.prompts.size());
    }
  }

  Status Run() {
    const std::vector<EvalRow> sweep = SweepRows();
    const size_t tsp_runs = map_.tsp.candidates.size();
    const std::vector<EvalRow> tsp_rows = {
        ReferenceRow(options_.kv_dtype),
        MakeRow("adaptive", options_.tsp_retention_ppm, options_.tsp_ppm, options_.kv_dtype)};
    meter_.ExpectWork(meter_.WorkOf(sweep) +
                      static_cast<int64_t>(tsp_runs) * meter_.WorkOf(tsp_rows));
    HEADROOM_RETURN_IF_ERROR(SweepDense(sweep));
    HEADROOM_RETURN_IF_ERROR(SweepLocal());
    HEADROOM_RETURN_IF_ERROR(MeasureTsp(tsp_rows));
    Judge();
    return OkStatus();
  }

 private:
  // A registry whose `adaptive` is the map as it stands.
  std::unique_ptr<engine::KvPolicyRegistry> Policies() const {
    auto policies = std::make_unique<engine::KvPolicyRegistry>();
    policies->Add(engine::MakeAdaptivePolicy(std::make_shared<const HeadMap>(map_), kBalanced));
    return policies;
  }

  std::vector<EvalRow> SweepRows() const {
    std::vector<EvalRow> rows = {ReferenceRow(options_.kv_dtype)};
    for (const int64_t retention : options_.retentions_ppm) {
      for (const std::string& policy : options_.uniform) {
        rows.push_back(MakeRow(policy, retention, kPpm, options_.kv_dtype));
      }
      for (const int64_t dense : options_.dense_shares_ppm) {
        rows.push_back(SplitRow(retention, dense, 0, options_.kv_dtype));
      }
    }
    return rows;
  }

  void Note(const EvalRow& row, const Measured& measured) {
    if (row.policy != "adaptive") {
      map_.validation.rows.push_back(ToRow(row, measured, full_));
      return;
    }
    map_.validation.front.push_back(ToRow(row, measured, full_));
    splits_.push_back(ToSplit(row, measured, full_));
  }

  Status SweepDense(const std::vector<EvalRow>& rows) {
    SetPlans();  // of no points yet: the rows name their shares
    HEADROOM_ASSIGN_OR_RETURN(const auto measured, meter_.Measure(rows, *Policies(), tsp_layer_));
    full_ = measured.front();
    for (size_t i = 1; i < rows.size(); ++i) {
      Note(rows[i], measured[i]);
    }
    SetPlans();
    return OkStatus();
  }

  // Local windows have to earn their place: at the balanced split of every retention, and the same
  // for all.
  Status SweepLocal() {
    const bool any_local = std::any_of(
        map_.heads.begin(), map_.heads.end(),
        [](const engine::HeadEntry& head) { return head.type < engine::HeadType::kHeavy; });
    if (!any_local || options_.local_shares_ppm.empty()) {
      return OkStatus();
    }
    const engine::SpendPlan balanced = *map_.FindSpend(kBalanced);
    std::vector<EvalRow> rows = {ReferenceRow(options_.kv_dtype)};
    for (const int64_t local : options_.local_shares_ppm) {
      for (const engine::SpendPoint& point : balanced.points) {
        rows.push_back(
            SplitRow(point.retention_ppm, point.dense_share_ppm, local, options_.kv_dtype));
      }
    }
    meter_.ExpectWork(meter_.WorkOf(rows));
    HEADROOM_ASSIGN_OR_RETURN(const auto measured, meter_.Measure(rows, *Policies(), tsp_layer_));
    for (size_t i = 1; i < rows.size(); ++i) {
      Note(rows[i], measured[i]);
    }
    ChooseLocal(balanced);
    return OkStatus();
  }

  const SplitResult* FindSplit(const engine::SpendPoint& point, int64_t local) const {
    for (const SplitResult& split : splits_) {
      if (split.retention_ppm == point.retention_ppm && split.local_share_ppm == local &&
          split.dense_share_ppm == point.dense_share_ppm) {
        return &split;
      }
    }
    return nullptr;
  }

  // The share whose mean delta-NLL is the least without an answer lost in sum.
  void ChooseLocal(const engine::SpendPlan& balanced) {
    int64_t best = 0;
    double best_gain = 0.0;
    for (const int64_t local : options_.local_shares_ppm) {
      double gain = 0.0;
      double answers = 0.0;
      for (const engine::SpendPoint& point : balanced.points) {
        const SplitResult* without = FindSplit(point, 0);
        const SplitResult* with = FindSplit(point, local);
        if (without != nullptr && with != nullptr) {
          gain += without->delta_nll - with->delta_nll;
          answers += with->seen + with->unseen - without->seen - without->unseen;
        }
      }
      if (answers >= 0.0 && gain > best_gain) {
        best = local;
        best_gain = gain;
      }
    }
    for (engine::SpendPlan& plan : map_.spend) {
      plan.local_share_ppm = best;
    }
  }

  void SetPlans() {
    map_.spend.clear();
    for (const char* prefer : {"answers", kBalanced, "fluency"}) {
      map_.spend.push_back(ChooseSpend(prefer, splits_, options_.choice));
    }
  }

  Status MeasureTsp(const std::vector<EvalRow>& rows) {
    for (engine::TspCandidate& candidate : map_.tsp.candidates) {
      HEADROOM_ASSIGN_OR_RETURN(const auto measured,
                                meter_.Measure(rows, *Policies(), candidate.layer,
                                               /*asks_reference=*/false));
      const ValidationRow row = ToRow(rows[1], measured[1], full_);
      candidate.tsp_ppm = options_.tsp_ppm;
      candidate.delta_nll_ppm = row.delta_nll_ppm;
      candidate.seen_ppm = row.seen_ppm;
      candidate.unseen_ppm = row.unseen_ppm;
      candidate.validated = true;
    }
    return OkStatus();
  }

  // The rows of the map's balanced choice, found in the front.
  void Judge() {
    engine::MapValidation& validation = map_.validation;
    const engine::SpendPlan& balanced = *map_.FindSpend(kBalanced);
    for (const engine::SpendPoint& point : balanced.points) {
      for (const ValidationRow& row : validation.front) {
        if (row.retention_ppm == point.retention_ppm &&
            row.dense_share_ppm == point.dense_share_ppm &&
            row.local_share_ppm == balanced.local_share_ppm) {
          Compare(row);
          validation.rows.push_back(row);
        }
      }
    }
    std::stable_sort(validation.rows.begin(), validation.rows.end(),
                     [](const ValidationRow& a, const ValidationRow& b) {
                       return std::pair(a.retention_ppm, a.policy) <
                              std::pair(b.retention_ppm, b.policy);
                     });
    int64_t prompts = std::max<int64_t>(options_.num_prompts, 0);
    for (const engine::MapCorpus& corpus : map_.profile.corpus) {
      prompts += options_.num_prompts < 0 ? corpus.prompts : 0;
    }
    if (!validation.reasons.empty()) {
      validation.status = "fail";
    } else if (prompts < options_.min_prompts) {
      validation.status = "unvalidated";
      validation.reasons.push_back(
          fmt::format("{} prompts, wanted at least {}", prompts, options_.min_prompts));
    } else {
      validation.status = "pass";
    }
  }

  // A map that loses to uniform FastKV at equal entries is not worth its place.
  void Compare(const ValidationRow& chosen) {
    for (const ValidationRow& uniform : map_.validation.rows) {
      if (uniform.policy != "fastkv" || uniform.retention_ppm != chosen.retention_ppm) {
        continue;
      }
      const std::string at = fmt::format("at retention {}", PpmText(chosen.retention_ppm));
      // The front trades fluency for answers: only a loss in both is a loss.
      const int64_t answers = chosen.seen_ppm + chosen.unseen_ppm;
      const int64_t uniform_answers = uniform.seen_ppm + uniform.unseen_ppm;
      if (chosen.kl_ppm > uniform.kl_ppm && answers <= uniform_answers) {
        map_.validation.reasons.push_back(
            fmt::format("{}: KL {} with the map, {} with uniform fastkv", at,
                        PpmText(chosen.kl_ppm), PpmText(uniform.kl_ppm)));
      }
      // Both protocols together: of few questions one more or less with the question seen is
      // chance.
      if (answers < uniform_answers) {
        map_.validation.reasons.push_back(
            fmt::format("{}: fewer needles answered than with uniform fastkv", at));
      }
    }
  }

  const ValidationOptions& options_;
  const int32_t tsp_layer_;
  Meter meter_;
  HeadMap& map_;
  Measured full_;
  std::vector<SplitResult> splits_;
};

}  // namespace

Status ValidateMap(const EvalModel& model, const ValidationMaterial& material,
                   const ValidationOptions& options, EvalObserver& observer, HeadMap* map) {
  if (material.documents.empty() && material.tasks.empty()) {
    return InvalidArgument(
        "validation: no document and no needle is held out, wanted one at least");
  }
  return Validator(model, material, options, observer, *map).Run();
}

}  // namespace headroom::profiler
