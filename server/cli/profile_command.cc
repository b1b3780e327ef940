// headroom profile: types every KV head of a model and writes its head map.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/clock.h"
#include "profiler/atomic_file.h"
#include "profiler/evaluation/documents.h"
#include "profiler/profile_report.h"
#include "server/budget_resolver.h"
#include "server/cli/cli.h"
#include "server/cli/commands.h"
#include "server/cli/common_flags.h"
#include "server/cli/eval_grid.h"
#include "server/cli/eval_progress.h"
#include "server/profiling.h"

namespace headroom::server {
namespace {

constexpr int kExitInterrupted = 130;

struct ProfileFlags {
  RuntimeFlags runtime;
  std::vector<std::string> prompts;
  int64_t limit = 256;
  int32_t max_len = 4096;
  std::string lengths;
  std::string target_recovery = "0.95";
  std::string budget_ratio = "0.3";
  std::string probe_threshold = "0.1";
  std::string value_error_limit;
  std::string ladder = "default";
  std::string classifier = "threshold";
  int32_t types = 4;
  std::string synthetic = "needle,induction";
  uint64_t seed = 1;
  std::string out;
  std::string report;
  bool no_validate = false;
  bool all_prompts = false;
  bool paper_statistic = false;
  bool quiet = false;
};

Status ReadRatio(const std::string& text, const char* flag, int64_t* ppm) {
  const auto ratio = ParseRatioPpm(text);
  if (!ratio.has_value() || *ratio < 1 || *ratio > 1'000'000) {
    return InvalidArgument("{}: got {}, wanted a ratio in (0, 1] with at most six decimal places",
                           flag, text.substr(0, 40));
  }
  *ppm = *ratio;
  return OkStatus();
}

Status ReadChoices(const ProfileFlags& flags, profiler::ProfileOptions* options) {
  if (flags.ladder != "default" && flags.ladder != "paper") {
    return InvalidArgument("--ladder: got {}, wanted default or paper", flags.ladder);
  }
  if (flags.classifier != "threshold" && flags.classifier != "cluster") {
    return InvalidArgument("--classifier: got {}, wanted threshold or cluster", flags.classifier);
  }
  options->paper_ladder = flags.ladder == "paper";
  options->paper_statistic = options->paper_ladder || flags.paper_statistic;
  options->by_clusters = flags.classifier == "cluster";
  options->num_clusters = flags.types;
  options->probes.needles = false;
  options->probes.induction = false;
  if (flags.synthetic.empty() || flags.synthetic == "none") {
    return OkStatus();
  }
  HEADROOM_ASSIGN_OR_RETURN(const auto kinds, SplitList(flags.synthetic, "--synthetic"));
  for (const std::string& kind : kinds) {
    if (kind != "needle" && kind != "induction") {
      return InvalidArgument("--synthetic: got {}, wanted needle, induction or none", kind);
    }
    (kind == "needle" ? options->probes.needles : options->probes.induction) = true;
  }
  return OkStatus();
}

Status ReadLengths(const ProfileFlags& flags, ProfileRequest* request) {
  if (flags.lengths.empty()) {
    return OkStatus();
  }
  HEADROOM_ASSIGN_OR_RETURN(const auto lengths, ParseNumbers(flags.lengths, "--lengths"));
  for (const int64_t length : lengths) {
    if (length < 1 || length > flags.max_len) {
      return InvalidArgument("--lengths: got {}, wanted 1 to the {} of --max-len", length,
                             flags.max_len);
    }
    if (!request->lengths.empty() && length <= request->lengths.back()) {
      return InvalidArgument("--lengths: got {} behind {}, wanted ascending numbers", length,
                             request->lengths.back());
    }
    request->lengths.push_back(static_cast<int32_t>(length));
  }
  return OkStatus();
}

StatusOr<ProfileRequest> ToRequest(const ProfileFlags& flags) {
  HEADROOM_RETURN_IF_ERROR(FinishRuntimeFlags(flags.runtime));
  if (flags.prompts.empty()) {
    return InvalidArgument("--prompts: wanted at least one file of JSON lines or text");
  }
  if (flags.out.empty()) {
    return InvalidArgument("--out: wanted the file that the head map is written to");
  }
  for (const std::string& path : {flags.out, flags.report}) {
    if (!path.empty()) {
      HEADROOM_RETURN_IF_ERROR(profiler::CheckWritable(path));
    }
  }
  ProfileRequest request;
  request.runtime = flags.runtime.options;
  request.limit = flags.limit;
  request.max_tokens = flags.max_len;
  request.validate = !flags.no_validate;
  profiler::ProfileOptions& options = request.options;
  options.stop_early = !flags.all_prompts;
  options.classifier.seed = flags.seed;
  HEADROOM_RETURN_IF_ERROR(ReadChoices(flags, &options));
  HEADROOM_RETURN_IF_ERROR(ReadLengths(flags, &request));
  HEADROOM_RETURN_IF_ERROR(
      ReadRatio(flags.target_recovery, "--target-recovery", &options.classifier.pass.theta_ppm));
  HEADROOM_RETURN_IF_ERROR(
      ReadRatio(flags.budget_ratio, "--budget-ratio", &options.budget_ratio_ppm));
  HEADROOM_RETURN_IF_ERROR(ReadRatio(flags.probe_threshold, "--probe-threshold",
                                     &options.classifier.promotion.threshold_ppm));
  if (!flags.value_error_limit.empty()) {
    HEADROOM_RETURN_IF_ERROR(ReadRatio(flags.value_error_limit, "--value-error-limit",
                                       &options.classifier.value_error_limit_ppm));
  }
  for (const std::string& path : flags.prompts) {
    HEADROOM_ASSIGN_OR_RETURN(std::string text, profiler::ReadInput(path, "--prompts"));
    request.files.push_back({.name = profiler::FileName(path), .text = std::move(text)});
  }
  return request;
}

Status Write(const ProfileFlags& flags, const ProfileOutcome& outcome) {
  const profiler::ProfileReport report = {.map = outcome.map, .notes = outcome.notes};
  if (!flags.report.empty()) {
    HEADROOM_RETURN_IF_ERROR(
        profiler::WriteFileAtomically(flags.report, profiler::HtmlText(report)));
  }
  HEADROOM_RETURN_IF_ERROR(
      profiler::WriteFileAtomically(flags.out, engine::WriteHeadMap(outcome.map)));
  const std::string table = profiler::TableText(report);
  std::fwrite(table.data(), 1, table.size(), stdout);
  return OkStatus();
}

int ProfileModel(const ProfileFlags& flags) {
  const StatusOr<ProfileRequest> request = ToRequest(flags);
  if (!request.ok()) {
    return ReportError(request.status());
  }
  SteadyClock clock;
  EvalProgress progress(clock, flags.quiet);
  const StatusOr<ProfileOutcome> outcome = Profile(*request, clock, progress);
  progress.Clear();
  if (!outcome.ok()) {
    const int code = ReportError(outcome.status());
    return outcome.status().code() == StatusCode::kCancelled ? kExitInterrupted : code;
  }
  if (const Status written = Write(flags, *outcome); !written.ok()) {
    return ReportError(written);
  }
  return kExitOk;
}

void AddInputFlags(CLI::App* command, ProfileFlags* flags) {
  command
      ->add_option("--prompts", flags->prompts,
                   "prompts: JSON lines, or text parted by lines of --- (.txt); may be repeated")
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
  command->add_option("--lengths", flags->lengths,
                      "cut prompts to each of these lengths, so that budgets are fitted to N");
  command
      ->add_option("--synthetic", flags->synthetic,
                   "probes that are made: needle (needs a tokenizer), induction, none")
      ->capture_default_str();
  command->add_flag("--all-prompts", flags->all_prompts, "go on when the types have settled");
}

void AddClassifierFlags(CLI::App* command, ProfileFlags* flags) {
  command
      ->add_option("--target-recovery", flags->target_recovery,
                   "theta: attention mass that a head's rung has to keep")
      ->capture_default_str();
  command
      ->add_option("--budget-ratio", flags->budget_ratio,
                   "local and heavy share of the paper's ladder, and of the widest local rung")
      ->capture_default_str();
  command->add_option("--ladder", flags->ladder, "default, or paper: FastGen's five sets")
      ->capture_default_str();
  command->add_flag(
      "--paper-statistic", flags->paper_statistic,
      "also type by the paper's statistic, for the report; --ladder paper implies it");
  command->add_option("--classifier", flags->classifier, "threshold, or cluster for comparison")
      ->capture_default_str();
  command->add_option("--types", flags->types, "clusters")
      ->capture_default_str()
      ->check(CLI::Range(2, 5));
  command
      ->add_option("--probe-threshold", flags->probe_threshold,
                   "copy or induction score that makes a head dense")
      ->capture_default_str();
  command->add_option("--value-error-limit", flags->value_error_limit,
                      "relative output error above which a head takes the next rung; unset: none");
  command->add_option("--seed", flags->seed, "of probes, bootstrap and clusters")
      ->capture_default_str();
}

}  // namespace

CommandRunner AddProfileCommand(CLI::App* command) {
  auto flags = std::make_shared<ProfileFlags>();
  AddRuntimeFlags(command, &flags->runtime);
  for (const char* name :
       {"--kv-memory-mib", "--kv-pages", "--kv-overcommit", "--max-running", "--max-queued",
        "--step-time-ms", "--check-invariants", "--tsp-layer", "--head-map", "--head-map-check"}) {
    if (CLI::Option* option = command->get_option_no_throw(name); option != nullptr) {
      command->remove_option(option);
    }
  }
  flags->runtime.log_level = "warning";
  AddInputFlags(command, flags.get());
  AddClassifierFlags(command, flags.get());
  command->add_option("--out", flags->out, "write the head map to this file")->type_name("FILE");
  command->add_option("--report", flags->report, "write a page with the findings to this file")
      ->type_name("FILE");
  command->add_flag("--no-validate", flags->no_validate, "types only; the map says unvalidated");
  command->add_flag("--quiet", flags->quiet, "no progress on stderr");
  return [flags] { return ProfileModel(*flags); };
}

}  // namespace headroom::server
