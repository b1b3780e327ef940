// headroom headmap check: does a map fit a model? By hashes, and by measuring the heads anew.
#include <cstdio>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/thread_pool.h"
#include "engine/kv/head_map_binding.h"
#include "profiler/atomic_file.h"
#include "profiler/evaluation/documents.h"
#include "profiler/head_map_diff.h"
#include "server/cli/cli.h"
#include "server/cli/commands.h"
#include "server/cli/common_flags.h"
#include "server/cli/eval_progress.h"
#include "server/profiling.h"

namespace headroom::server {
namespace {

using engine::HeadMap;

struct CheckFlags {
  std::string map;
  RuntimeFlags runtime;
  std::vector<std::string> prompts;
  int64_t limit = 64;
  int32_t max_len = 4096;
  std::string out;
  bool quiet = false;
};

constexpr int32_t kClusters = 4;

// The settings that the map was made with, on these prompts.
StatusOr<ProfileRequest> RequestOf(const CheckFlags& flags, const HeadMap& map) {
  ProfileRequest request;
  request.runtime = flags.runtime.options;
  request.limit = flags.limit;
  request.max_tokens = flags.max_len;
  request.validate = false;
  profiler::ProfileOptions& options = request.options;
  options.paper_ladder = map.profile.ladder == "paper/1";
  options.paper_statistic = options.paper_ladder;
  options.by_clusters = map.profile.classifier == "cluster/1";
  options.num_clusters = kClusters;
  options.budget_ratio_ppm = map.profile.budget_ratio_ppm;
  options.classifier.seed = map.profile.seed;
  options.classifier.recent_tokens = map.profile.recent_tokens;
  options.classifier.pass.theta_ppm = map.profile.theta_ppm;
  options.classifier.promotion.threshold_ppm = map.profile.probe_threshold_ppm;
  for (const std::string& path : flags.prompts) {
    HEADROOM_ASSIGN_OR_RETURN(std::string text, profiler::ReadInput(path, "--prompts"));
    request.files.push_back({.name = profiler::FileName(path), .text = std::move(text)});
  }
  return request;
}

// Types the model's heads anew and prints what changed.
StatusOr<profiler::MapVerdict> Retest(const CheckFlags& flags, const HeadMap& map) {
  HEADROOM_ASSIGN_OR_RETURN(const ProfileRequest request, RequestOf(flags, map));
  SteadyClock clock;
  EvalProgress progress(clock, flags.quiet);
  auto outcome = Profile(request, clock, progress);
  progress.Clear();
  HEADROOM_RETURN_IF_ERROR(outcome.status());
  outcome->map.hash = map.hash;  // nothing is written: there is no other hash to show
  HEADROOM_ASSIGN_OR_RETURN(const auto flips, profiler::DiffHeadMaps(map, outcome->map));
  const std::string text = profiler::DiffText(map, outcome->map, flips);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return profiler::JudgeMap(map, outcome->map);
}

Status WriteBound(const CheckFlags& flags, const HeadMap& map, const std::string& weights_hash) {
  const HeadMap bound = engine::AddBound(map, weights_hash);
  HEADROOM_RETURN_IF_ERROR(profiler::WriteFileAtomically(flags.out, engine::WriteHeadMap(bound)));
  std::printf("%s: accepts the weights %s\n", flags.out.c_str(), weights_hash.c_str());
  return OkStatus();
}

struct Binding {
  engine::HeadMapBinding binding;
  std::string weights_hash;
};

// By hashes. Warnings do not stop it, another architecture or tokenizer does.
StatusOr<Binding> Bind(const CheckFlags& flags, const HeadMap& map) {
  HEADROOM_ASSIGN_OR_RETURN(const models::LoadedModel loaded,
                            models::LoadModel(flags.runtime.options.model));
  const int32_t threads = flags.runtime.options.threads;
  const engine::ModelIdentity identity =
      engine::IdentifyModel(loaded, threads > 0 ? threads : AvailableCpus());
  Binding result;
  HEADROOM_ASSIGN_OR_RETURN(result.binding,
                            engine::CheckBinding(map, identity, engine::HeadMapCheck::kWarn));
  result.weights_hash = identity.model.weights_hash;
  return result;
}

void PrintBinding(const Binding& bound, const HeadMap& map) {
  std::printf("architecture, tokenizer: the map's\nweights: %s\n",
              bound.binding.other_weights                    ? "others"
              : bound.weights_hash == map.model.weights_hash ? "the map's"
                                                             : "bound to the map");
  for (const std::string& warning : bound.binding.warnings) {
    std::printf("warning: %s\n", warning.c_str());
  }
}

// The exit status: whether the map may be used, as it is or bound.
StatusOr<int> Check(const CheckFlags& flags) {
  HEADROOM_RETURN_IF_ERROR(FinishRuntimeFlags(flags.runtime));
  if (!flags.out.empty()) {
    HEADROOM_RETURN_IF_ERROR(profiler::CheckWritable(flags.out));
  }
  HEADROOM_ASSIGN_OR_RETURN(const HeadMap map, engine::LoadHeadMap(flags.map));
  HEADROOM_ASSIGN_OR_RETURN(const Binding bound, Bind(flags, map));
  PrintBinding(bound, map);
  bool fits = !bound.binding.other_weights;
  if (!flags.prompts.empty()) {
    HEADROOM_ASSIGN_OR_RETURN(const profiler::MapVerdict verdict, Retest(flags, map));
    std::printf("%s\n", verdict.text.c_str());
    if (!verdict.keep) {
      if (!flags.out.empty()) {
        ReportError(FailedPrecondition("{} was not written: the heads have changed", flags.out));
      }
      return kExitDiffers;
    }
    fits = true;
  } else if (bound.binding.other_weights) {
    std::printf("heads not measured: --prompts FILE does, and says keep or re-profile\n");
  }
  if (!flags.out.empty()) {  // without prompts on the word of who binds
    HEADROOM_RETURN_IF_ERROR(WriteBound(flags, map, bound.weights_hash));
    fits = true;
  }
  return fits ? kExitOk : kExitDiffers;
}

}  // namespace

CommandRunner AddHeadMapCheckCommand(CLI::App* command) {
  auto flags = std::make_shared<CheckFlags>();
  command->add_option("map", flags->map, "head map, of `headroom profile`")->type_name("FILE");
  AddRuntimeFlags(command, &flags->runtime);
  for (const char* name : {"--kv-memory-mib", "--kv-pages", "--kv-overcommit", "--max-running",
                           "--max-queued", "--step-time-ms", "--check-invariants", "--tsp-layer",
                           "--head-map", "--head-map-check", "--prefer"}) {
    command->remove_option(command->get_option(name));
  }
  flags->runtime.log_level = "error";  // what the log would say is printed
  command
      ->add_option("--prompts", flags->prompts,
                   "measure the heads anew on these prompts (as for `profile`); may be repeated")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("FILE");
  command->add_option("--limit", flags->limit, "prompts at most")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  command
      ->add_option("--max-len", flags->max_len, "tokens of a prompt; longer ones lose their middle")
      ->capture_default_str()
      ->check(CLI::Range(16, 1 << 24));
  command
      ->add_option("-o,--out", flags->out,
                   "write a copy that accepts this model's weights too: for quantised siblings")
      ->type_name("FILE");
  command->add_flag("--quiet", flags->quiet, "no progress on stderr");
  return [flags] {
    const StatusOr<int> code = Check(*flags);
    return code.ok() ? *code : ReportError(code.status());
  };
}

}  // namespace headroom::server
