#include "profiler/profile_run.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "models/fingerprint.h"
#include "profiler/attention_statistics.h"
#include "profiler/evaluation/eval_row.h"
#include "profiler/probes.h"

namespace headroom::profiler {
namespace {

// Lengths that text probes are tried at when the prompts are too short for the wanted one.
constexpr int32_t kShorter[] = {500, 250};
constexpr int32_t kBlockRepeats = 4;
constexpr int32_t kProbeSlack = 32;

HeadShape ShapeOf(const models::ModelConfig& config) {
  return {.num_layers = config.num_hidden_layers,
          .num_query_heads = config.num_attention_heads,
          .num_kv_heads = config.num_key_value_heads};
}

// One profile in the making.
class Run {
 public:
  Run(const EvalModel& model, kernels::KvDType kv_dtype, const ProfileInput& input,
      const TextFormat* format, const ProfileOptions& options, EvalObserver& observer)
      : model_(model),
        kv_dtype_(kv_dtype),
        input_(input),
        format_(format),
        options_(options),
        observer_(observer),
        ladder_(options.paper_ladder ? PaperLadder(options.budget_ratio_ppm)
                                     : DefaultLadder(options.budget_ratio_ppm)),
        paper_ladder_(PaperLadder(options.budget_ratio_ppm)),
        classifier_(ShapeOf(model.model.config()), ladder_, paper_ladder_, options.classifier) {}

  StatusOr<ProfileResult> Do(const ProfileIdentity& identity);

 private:
  void MakeProbes();
  Status Measure();
  Status MeasurePrompts(PromptReader& reader);
  Status MeasureProbes(PromptReader& reader);
  Status Advance(size_t tokens, const std::string& what);
  void FillProfile(engine::MapProfile* profile) const;
  void Warn(std::string warning) { notes_.warnings.push_back(std::move(warning)); }

  const EvalModel& model_;
  const kernels::KvDType kv_dtype_;
  const ProfileInput& input_;
  const TextFormat* format_;
  const ProfileOptions& options_;
  EvalObserver& observer_;
  const Ladder ladder_;
  const Ladder paper_ladder_;
  HeadClassifier classifier_;
  std::vector<ProbePrompt> probes_;
  ProfileNotes notes_;
  int64_t done_ = 0;
  int64_t total_ = 0;
};

// The input's own probes, and those that are made.
void Run::MakeProbes() {
  probes_ = input_.probes;
  const ProbeOptions& options = options_.probes;
  ProbeRequest request{.length = options.length,
                       .count = options.num_needle_prompts,
                       .seed = options_.classifier.seed};
  // Made prompts are about as long as asked for: some room for BOS and the template.
  const int32_t context = options_.max_context > 0 ? options_.max_context
                                                   : model_.model.config().max_position_embeddings;
  request.length = std::max(1, std::min(request.length, context - kProbeSlack));
  if (options.needles && format_ != nullptr) {
    std::vector<std::vector<int32_t>> fillers;
    for (const ProfilePrompt& prompt : input_.prompts) {
      fillers.push_back(prompt.ids);
    }
    auto made = MakeTextProbes(*format_, fillers, request);
    for (const int32_t length : kShorter) {
      if (!made.ok() && length < request.length) {
        ProbeRequest shorter = request;
        shorter.length = length;
        made = MakeTextProbes(*format_, fillers, shorter);
      }
    }
    if (made.ok()) {
      std::move(made->begin(), made->end(), std::back_inserter(probes_));
    } else {
      Warn(fmt::format("no needle probes: {}", StatusMessage(made.status())));
    }
  }
  if (options.induction) {
    request.count = options.num_blocks;
    auto blocks = MakeBlockProbes(format_ == nullptr ? nullptr : &format_->tokenizer,
                                  model_.model.config().vocab_size, kBlockRepeats, request);
    std::move(blocks.begin(), blocks.end(), std::back_inserter(probes_));
  }
  std::erase_if(probes_, [context](const ProbePrompt& probe) {
    return probe.ids.size() > static_cast<size_t>(context);
  });
}

Status Run::Advance(size_t tokens, const std::string& what) {
  done_ += static_cast<int64_t>(tokens);
  observer_.Progress(done_, total_, what);
  return observer_.Cancelled() ? CancelledStatus() : OkStatus();
}

Status Run::MeasurePrompts(PromptReader& reader) {
  StopRule stop;
  StatisticsOptions settings;
  settings.ladder = ladder_;
  if (options_.paper_statistic) {
    settings.paper_ladder = paper_ladder_;
  }
  settings.recent_tokens = static_cast<int32_t>(options_.classifier.recent_tokens);
  settings.top_ppm = options_.tsp.tsp_ppm;
  HEADROOM_ASSIGN_OR_RETURN(const auto statistics,
                            AttentionStatistics::Create(reader, std::move(settings)));
  const auto count = static_cast<int64_t>(input_.prompts.size());
  for (int64_t i = 0; i < count; ++i) {
    const ProfilePrompt& prompt = input_.prompts[static_cast<size_t>(i)];
    const PromptTokens tokens = {.ids = prompt.ids,
                                 .content_end = static_cast<int32_t>(prompt.ids.size())};
    classifier_.Add(statistics->Measure(tokens, prompt.domain, prompt.weight));
    ++notes_.num_prompts;
    HEADROOM_RETURN_IF_ERROR(
        Advance(prompt.ids.size(), fmt::format("prompt {} of {}", i + 1, count)));
    observer_.Finished("prompt " + prompt.id, i + 1, count);
    const auto measured = static_cast<size_t>(notes_.num_prompts);
    if (options_.stop_early && StopRule::IsDue(measured) &&
        stop.ShouldStop(measured, classifier_.Types()) && i + 1 < count) {
      notes_.num_prompts_left = count - (i + 1);
      break;
    }
  }
  return OkStatus();
}

Status Run::MeasureProbes(PromptReader& reader) {
  for (size_t i = 0; i < probes_.size(); ++i) {
    classifier_.AddProbe(MeasureProbe(reader, probes_[i]));
    HEADROOM_RETURN_IF_ERROR(
        Advance(probes_[i].ids.size(), fmt::format("probe {} of {}", i + 1, probes_.size())));
  }
  return OkStatus();
}

Status Run::Measure() {
  size_t longest = 1;
  for (const ProbePrompt& probe : probes_) {
    longest = std::max(longest, probe.ids.size());
    total_ += static_cast<int64_t>(probe.ids.size());
  }
  for (const ProfilePrompt& prompt : input_.prompts) {
    longest = std::max(longest, prompt.ids.size());
    total_ += static_cast<int64_t>(prompt.ids.size());
  }
  HEADROOM_ASSIGN_OR_RETURN(const auto reader,
                            PromptReader::Create(model_, kv_dtype_, static_cast<int32_t>(longest)));
  // Probes first: what they promote counts when the stop rule compares types.
  HEADROOM_RETURN_IF_ERROR(MeasureProbes(*reader));
  return MeasurePrompts(*reader);
}

void Run::FillProfile(engine::MapProfile* profile) const {
  const ClassifierOptions& options = options_.classifier;
  const ReferenceLength& reference = notes_.classification.reference;
  profile->version = options_.version;
  profile->backend = model_.backend.name();
  profile->kv_dtype = DTypeName(kv_dtype_);
  profile->ladder = ladder_.name;
  profile->classifier = options_.by_clusters ? "cluster/1" : "threshold/1";
  profile->theta_ppm = options.pass.theta_ppm;
  profile->budget_ratio_ppm = options_.budget_ratio_ppm;
  profile->probe_threshold_ppm = options.promotion.threshold_ppm;
  profile->recent_tokens = static_cast<int32_t>(options.recent_tokens);
  profile->seed = options.seed;
  profile->reference_tokens = reference.num_tokens;
  profile->reference_special = reference.num_special;
  profile->reference_punctuation = reference.num_punctuation;
  struct Part {
    std::vector<std::string> hashes;
    int64_t tokens = 0;
    void Add(std::string hash, size_t more) {
      hashes.push_back(std::move(hash));
      tokens += static_cast<int64_t>(more);
    }
  };
  const auto list = [](std::map<std::string, Part> parts) {
    std::vector<engine::MapCorpus> corpus;
    for (auto& [name, part] : parts) {
      const auto prompts = static_cast<int64_t>(part.hashes.size());
      corpus.push_back({.domain = name,
                        .hash = models::CorpusHash(std::move(part.hashes)),
                        .prompts = prompts,
                        .tokens = part.tokens});
    }
    return corpus;
  };
  std::map<std::string, Part> domains;
  for (int64_t i = 0; i < notes_.num_prompts; ++i) {
    const ProfilePrompt& prompt = input_.prompts[static_cast<size_t>(i)];
    domains[prompt.domain].Add(prompt.hash, prompt.ids.size());
  }
  profile->corpus = list(std::move(domains));
  std::map<std::string, Part> kinds;
  for (const ProbePrompt& probe : probes_) {
    kinds[probe.kind].Add(models::PromptHash(probe.ids), probe.ids.size());
  }
  profile->probes = list(std::move(kinds));
}

StatusOr<ProfileResult> Run::Do(const ProfileIdentity& identity) {
  if (input_.prompts.empty()) {
    return InvalidArgument("profile: got no prompt with content, wanted at least one");
  }
  MakeProbes();
  HEADROOM_RETURN_IF_ERROR(Measure());
  notes_.classification = classifier_.Classify();
  Classification& found = notes_.classification;
  if (options_.by_clusters) {
    for (const engine::HeadEntry& head : found.heads) {
      notes_.threshold_types.push_back(head.type);
    }
    notes_.clusters =
        ClusterHeads(options_.num_clusters, ladder_, found.reference,
                     options_.classifier.recent_tokens, options_.budget_ratio_ppm,
                     options_.classifier.pass.theta_ppm, options_.classifier.seed, &found.heads);
    found.promoted.clear();  // clusters know no promotion
  }
  ProfileResult result;
  result.map.model = identity.model;
  result.map.tokenizer = identity.tokenizer;
  result.map.heads = found.heads;
  FillProfile(&result.map.profile);
  result.map.tsp =
      ChooseTspLayer(found.overlap_ppm, found.heads, identity.model.num_layers, options_.tsp);
  result.map.spend = DefaultSpendPlans();
  if (input_.num_cut > 0) {
    Warn(fmt::format("{} prompts were cut to the longest length", input_.num_cut));
  }
  result.notes = std::move(notes_);
  return result;
}

}  // namespace

StatusOr<ProfileResult> RunProfile(const EvalModel& model, kernels::KvDType kv_dtype,
                                   const ProfileInput& input, const TextFormat* format,
                                   const ProfileIdentity& identity, const ProfileOptions& options,
                                   EvalObserver& observer) {
  return Run(model, kv_dtype, input, format, options, observer).Do(identity);
}

std::vector<engine::SpendPlan> DefaultSpendPlans() {
  // From the measured front of a small model (docs/profiling.md): a quarter of the pool keeps
  // answers to questions that were seen, more of it those to later ones, at a price in fluency.
  return {{.prefer = "answers", .points = {{.retention_ppm = 1, .dense_share_ppm = 800'000}}},
          {.prefer = "balanced",
           .points = {{.retention_ppm = 1, .dense_share_ppm = 250'000},
                      {.retention_ppm = 200'000, .dense_share_ppm = 500'000}}},
          {.prefer = "fluency", .points = {{.retention_ppm = 1, .dense_share_ppm = 250'000}}}};
}

}  // namespace headroom::profiler
