// headroom eval: quality under compression against the full cache, as a table, JSON and HTML.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/clock.h"
#include "engine/token_classes.h"
#include "profiler/atomic_file.h"
#include "profiler/evaluation/cache_set.h"
#include "profiler/evaluation/fidelity.h"
#include "profiler/evaluation/needles.h"
#include "profiler/evaluation/report.h"
#include "server/cli/cli.h"
#include "server/cli/commands.h"
#include "server/cli/common_flags.h"
#include "server/cli/eval_grid.h"
#include "server/cli/eval_inputs.h"
#include "server/cli/eval_progress.h"
#include "server/runtime.h"

namespace headroom::server {
namespace {

constexpr int kExitInterrupted = 130;

struct EvalFlags {
  RuntimeFlags runtime;
  BudgetFlags settings;
  EvalGridFlags grid;
  EvalInputFlags inputs;
  std::string protocols = "aware,agnostic";
  int64_t max_tokens = 24;
  int64_t resamples = 10'000;
  std::string json;
  std::string html;
  bool quiet = false;
};

// What is measured.
struct EvalWork {
  std::vector<profiler::Document> documents;
  profiler::FidelityOptions fidelity;
  std::vector<profiler::NeedleTask> tasks;
  profiler::NeedleOptions needles;
  int32_t max_tokens = 1;  // of the longest sequence
};

StatusOr<std::vector<profiler::EvalRow>> MakeRows(const EvalFlags& flags, Runtime& runtime) {
  EvalGridFlags grid = flags.grid;
  grid.kv_dtype = flags.runtime.options.kv_dtype;
  HEADROOM_ASSIGN_OR_RETURN(grid.settings, ToBudgetFields(flags.settings));
  grid.settings.kv_min_prompt = grid.settings.kv_min_prompt.value_or(0);
  grid.settings.tsp_min_prompt = grid.settings.tsp_min_prompt.value_or(0);
  return MakeEvalRows(grid, runtime.policies(), runtime.shape(), runtime.head_map_info(),
                      runtime.backend().default_kv_dtype());
}

StatusOr<std::vector<profiler::Protocol>> ParseProtocols(const std::string& text) {
  HEADROOM_ASSIGN_OR_RETURN(const auto names, SplitList(text, "--protocols"));
  std::vector<profiler::Protocol> protocols;
  for (const std::string& name : names) {
    if (name != "aware" && name != "agnostic") {
      return InvalidArgument("--protocols: got {}, wanted aware or agnostic", name);
    }
    protocols.push_back(name == "aware" ? profiler::Protocol::kAware
                                        : profiler::Protocol::kAgnostic);
  }
  return protocols;
}

StatusOr<EvalWork> PrepareWork(const EvalFlags& flags, const Runtime& runtime, const Clock& clock) {
  EvalWork work;
  HEADROOM_ASSIGN_OR_RETURN(work.documents, ReadDocuments(flags.inputs, runtime));
  HEADROOM_ASSIGN_OR_RETURN(work.tasks, ReadNeedles(flags.inputs, runtime, clock));
  work.fidelity.continuation_tokens = static_cast<int32_t>(flags.inputs.continuation);
  HEADROOM_RETURN_IF_ERROR(
      profiler::CheckDocuments(work.documents, work.fidelity, runtime.max_context()));
  for (const profiler::Document& document : work.documents) {
    work.max_tokens = std::max(work.max_tokens, static_cast<int32_t>(document.ids.size()));
  }
  HEADROOM_ASSIGN_OR_RETURN(work.needles.protocols, ParseProtocols(flags.protocols));
  work.needles.max_new_tokens = static_cast<int32_t>(flags.max_tokens);
  work.needles.eos_token_ids = runtime.eos_token_ids();
  work.needles.tokenizer = runtime.tokenizer();
  for (const profiler::NeedleTask& task : work.tasks) {
    for (const profiler::NeedlePrompt& prompt : task.prompts) {
      const int32_t needed = profiler::TokensNeeded(prompt, work.needles);
      if (needed > runtime.max_context()) {
        return InvalidArgument(
            "prompt {}: {} tokens with its answer, wanted at most the context "
            "of {}",
            prompt.id, needed, runtime.max_context());
      }
      work.max_tokens = std::max(work.max_tokens, needed);
    }
  }
  return work;
}

profiler::EvalSettings DescribeRun(const EvalFlags& flags, Runtime& runtime) {
  profiler::EvalSettings settings;
  settings.model = runtime.model_name();
  settings.backend = runtime.backend().name();
  settings.num_layers = runtime.config().num_hidden_layers;
  settings.num_kv_heads = runtime.config().num_key_value_heads;
  settings.group_size = runtime.config().group_size();
  settings.head_dim = runtime.config().head_dim;
  settings.tsp_layer = runtime.shape().tsp_layer;
  settings.num_resamples = static_cast<int32_t>(flags.resamples);
  settings.seed = flags.inputs.seed;
  return settings;
}

Status Measure(const EvalFlags& flags, Runtime& runtime, const Clock& clock, EvalProgress& progress,
               profiler::EvalReport* report) {
  HEADROOM_ASSIGN_OR_RETURN(report->rows, MakeRows(flags, runtime));
  HEADROOM_ASSIGN_OR_RETURN(const EvalWork work, PrepareWork(flags, runtime, clock));
  report->settings = DescribeRun(flags, runtime);
  const profiler::EvalModel model = {
      .model = runtime.transformer(),
      .backend = runtime.backend(),
      .policies = runtime.policies(),
      .clock = clock,
      .shape = runtime.shape(),
      .attention_scale = runtime.transformer().attention_scale(),
      .max_rows = flags.runtime.options.max_batch_rows,
      .token_classes = runtime.tokenizer() == nullptr
                           ? nullptr
                           : engine::ClassifyVocabulary(*runtime.tokenizer())};
  HEADROOM_ASSIGN_OR_RETURN(const auto caches,
                            profiler::CacheSet::Create(model, report->rows, work.max_tokens));
  int64_t done = 0;
  int64_t overall = profiler::FidelityWork(work.documents, report->rows);
  for (const profiler::NeedleTask& task : work.tasks) {
    overall += profiler::NeedleWork(task, work.needles, report->rows);
  }
  progress.BeginPart(done, overall);
  if (!work.documents.empty()) {
    report->fidelity.emplace();
    HEADROOM_RETURN_IF_ERROR(profiler::MeasureFidelity(work.documents, work.fidelity, report->rows,
                                                       *caches, progress, &*report->fidelity));
    profiler::SummarizeFidelity(report->settings.num_resamples, report->settings.seed,
                                &*report->fidelity);
    done += profiler::FidelityWork(work.documents, report->rows);
  }
  for (const profiler::NeedleTask& task : work.tasks) {
    progress.BeginPart(done, overall);
    done += profiler::NeedleWork(task, work.needles, report->rows);
    HEADROOM_RETURN_IF_ERROR(profiler::MeasureNeedles(task, work.needles, report->rows, *caches,
                                                      progress, &report->needles));
  }
  for (profiler::NeedleReport& needles : report->needles) {
    profiler::SummarizeNeedles(report->settings.num_resamples, report->settings.seed, &needles);
  }
  return OkStatus();
}

Status CheckFlags(const EvalFlags& flags) {
  HEADROOM_RETURN_IF_ERROR(FinishRuntimeFlags(flags.runtime));
  const EvalInputFlags& inputs = flags.inputs;
  if (inputs.texts.empty() && inputs.byte_texts.empty() && inputs.id_files.empty() &&
      inputs.needle_files.empty() && inputs.make_needles.empty()) {
    return InvalidArgument(
        "nothing to measure on: wanted --text, --text-bytes, --ids, --needles or --make-needles");
  }
  if (flags.html == "-") {
    return InvalidArgument("--html: got -, wanted a file; only --json goes to standard output");
  }
  for (const std::string& path : {flags.json, flags.html}) {
    if (!path.empty() && path != "-") {
      HEADROOM_RETURN_IF_ERROR(profiler::CheckWritable(path));
    }
  }
  return OkStatus();
}

Status Write(const EvalFlags& flags, const profiler::EvalReport& report) {
  if (!flags.html.empty()) {
    HEADROOM_RETURN_IF_ERROR(profiler::WriteFileAtomically(flags.html, HtmlText(report)));
  }
  if (!flags.json.empty() && flags.json != "-") {
    HEADROOM_RETURN_IF_ERROR(profiler::WriteFileAtomically(flags.json, JsonText(report)));
  }
  const std::string shown = flags.json == "-" ? JsonText(report) : TableText(report);
  std::fwrite(shown.data(), 1, shown.size(), stdout);
  return OkStatus();
}

int Eval(const EvalFlags& flags) {
  if (const Status ok = CheckFlags(flags); !ok.ok()) {
    return ReportError(ok);
  }
  SteadyClock clock;
  RuntimeOptions options = flags.runtime.options;
  options.kv_dtype = "auto";  // the runtime's own cache only serves its self-test
  options.kv_memory_mib = 64;
  auto runtime = Runtime::Create(options, clock);
  if (!runtime.ok()) {
    return ReportError(runtime.status());
  }
  profiler::EvalReport report;
  EvalProgress progress(clock, flags.quiet);
  const Status measured = Measure(flags, **runtime, clock, progress, &report);
  progress.Clear();
  if (measured.code() == StatusCode::kCancelled) {
    ReportError(measured);
    return kExitInterrupted;
  }
  if (!measured.ok()) {
    return ReportError(measured);
  }
  if (const Status written = Write(flags, report); !written.ok()) {
    return ReportError(written);
  }
  return kExitOk;
}

void AddFiles(CLI::App* command, const char* name, std::vector<std::string>* paths,
              const char* help) {
  command->add_option(name, *paths, help)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("FILE");
}

void AddDocumentFlags(CLI::App* command, EvalInputFlags* flags) {
  AddFiles(command, "--text", &flags->texts, "text to cut into documents; may be repeated");
  AddFiles(command, "--text-bytes", &flags->byte_texts,
           "the same for a model whose ids are bytes (the needle models)");
  AddFiles(command, "--ids", &flags->id_files,
           "JSON lines of token ids, a document each; may be repeated");
  command
      ->add_option("--doc-tokens", flags->doc_tokens,
                   "tokens of a document, continuation included; a list: each length")
      ->capture_default_str();
  command
      ->add_option("--docs", flags->docs,
                   "documents of each file, at most; a list: one number for each length")
      ->capture_default_str();
  command
      ->add_option("--continuation", flags->continuation,
                   "last tokens of a document, fed one by one behind the compressed prefix")
      ->capture_default_str()
      ->check(CLI::Range(2, 1 << 20));
}

void AddNeedleFlags(CLI::App* command, EvalFlags* flags) {
  EvalInputFlags& inputs = flags->inputs;
  AddFiles(command, "--needles", &inputs.needle_files,
           "JSON lines of needle prompts, of ids or text; may be repeated");
  command->add_option("--make-needles", inputs.make_needles,
                      "make prompts: 1hop, 2hop (needle models), text (any tokenizer)");
  command->add_option("--haystack", inputs.haystack, "the text to hide needles in")
      ->type_name("FILE");
  command
      ->add_option("--needle-length", inputs.needle_length,
                   "tokens of a made prompt; a list: each length")
      ->capture_default_str();
  command
      ->add_option("--needle-count", inputs.needle_count,
                   "prompts of each length, or of each file at most")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  command
      ->add_option("--protocols", flags->protocols,
                   "aware: question in the compressed prompt; agnostic: fed behind it")
      ->capture_default_str();
  command->add_option("--max-tokens", flags->max_tokens, "longest answer to a text needle")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 16));
  command
      ->add_option("--rank-candidates", inputs.rank_candidates,
                   "answers ranked by likelihood, the right one included; 0: no ranking")
      ->capture_default_str()
      ->check(CLI::Range(0, 1000));
}

// Of the flags that other subcommands share: those that mean nothing here are taken away.
void AddGridFlags(CLI::App* command, EvalFlags* flags) {
  AddRuntimeFlags(command, &flags->runtime);
  AddBudgetFlags(command, &flags->settings);
  for (const char* name :
       {"--kv-memory-mib", "--kv-pages", "--max-running", "--max-queued", "--step-time-ms",
        "--check-invariants", "--kv-policy", "--kv-retention", "--tsp-ratio",
        "--kv-retention-tokens", "--tsp-tokens", "--kv-strict", "--kv-recovery"}) {
    command->remove_option(command->get_option(name));
  }
  command->get_option("--kv-dtype")
      ->description(
          "types of the KV cache: auto (cpu: bf16, ref: f32), f32, bf16, int8; the first one is "
          "the reference's");
  command->get_option("--kv-min-prompt")
      ->description("shorter prompts keep everything (here 0 when not named)");
  command->get_option("--tsp-min-prompt")
      ->description("shorter prompts run whole (here 0 when not named)");
  command->add_option("--policies", flags->grid.policies, "KV policies to compare")
      ->capture_default_str();
  command
      ->add_option("--retention", flags->grid.retention,
                   "shares of the prompt's KV entries to keep, for policies that take one")
      ->capture_default_str();
  command
      ->add_option("--tsp", flags->grid.tsp,
                   "shares of the prompt's rows that go on above the TSP layer; 1: all")
      ->capture_default_str();
  command
      ->add_option("--theta", flags->grid.theta,
                   "recovery targets of fastgen, and of adaptive under --kv-mode recovery")
      ->capture_default_str();
}

}  // namespace

CommandRunner AddEvalCommand(CLI::App* command) {
  auto flags = std::make_shared<EvalFlags>();
  AddGridFlags(command, flags.get());
  flags->runtime.log_level = "warning";
  AddDocumentFlags(command, &flags->inputs);
  AddNeedleFlags(command, flags.get());
  command->add_option("--resamples", flags->resamples, "of the bootstrap behind the intervals")
      ->capture_default_str()
      ->check(CLI::Range(100, 1'000'000));
  command->add_option("--seed", flags->inputs.seed, "of made prompts, candidates and the bootstrap")
      ->capture_default_str();
  command->add_option("--json", flags->json,
                      "write the results to this file; -: to stdout instead of the table");
  command->add_option("--html", flags->html, "write a page with plots to this file")
      ->type_name("FILE");
  command->add_flag("--quiet", flags->quiet, "no progress on stderr");
  return [flags] { return Eval(*flags); };
}

}  // namespace headroom::server
