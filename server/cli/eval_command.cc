// headroom eval: quality under compression against the full cache, as a table, JSON and HTML.
#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>

#include "base/clock.h"
#include "profiler/atomic_file.h"
#include "profiler/evaluation/cache_set.h"
#include "profiler/evaluation/fidelity.h"
#include "profiler/evaluation/report.h"
#include "server/cli/cli.h"
#include "server/cli/commands.h"
#include "server/cli/common_flags.h"
#include "server/cli/eval_grid.h"
#include "server/cli/eval_progress.h"
#include "server/runtime.h"

namespace headroom::server {
namespace {

constexpr int kExitInterrupted = 130;

struct EvalFlags {
  RuntimeFlags runtime;
  BudgetFlags settings;
  EvalGridFlags grid;
  std::vector<std::string> texts;
  std::vector<std::string> byte_texts;
  std::vector<std::string> id_files;
  std::string doc_tokens = "2048";
  std::string docs = "4";
  int64_t continuation = 256;
  int64_t resamples = 10'000;
  uint64_t seed = 1;
  std::string json;
  bool quiet = false;
};

// The lengths and numbers of documents that each text is cut into.
StatusOr<std::vector<profiler::DocumentCut>> MakeCuts(const EvalFlags& flags) {
  HEADROOM_ASSIGN_OR_RETURN(const auto lengths, ParseNumbers(flags.doc_tokens, "--doc-tokens"));
  HEADROOM_ASSIGN_OR_RETURN(auto counts, ParseNumbers(flags.docs, "--docs"));
  if (counts.size() == 1) {
    counts.resize(lengths.size(), counts.front());
  }
  if (counts.size() != lengths.size()) {
    return InvalidArgument("--docs: got {} numbers, wanted one, or one for each of the {} lengths",
                           counts.size(), lengths.size());
  }
  std::vector<profiler::DocumentCut> cuts;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] <= flags.continuation || lengths[i] > 1 << 24) {
      return InvalidArgument("--doc-tokens: got {}, wanted more than the {} of --continuation",
                             lengths[i], flags.continuation);
    }
    if (counts[i] < 1 || counts[i] > 1 << 20) {
      return InvalidArgument("--docs: got {}, wanted 1 or more", counts[i]);
    }
    cuts.push_back({.num_tokens = static_cast<int32_t>(lengths[i]),
                    .max_documents = static_cast<int32_t>(counts[i])});
  }
  return cuts;
}

StatusOr<std::vector<profiler::Document>> ReadDocuments(const EvalFlags& flags,
                                                        const Runtime& runtime) {
  HEADROOM_ASSIGN_OR_RETURN(const auto cuts, MakeCuts(flags));
  std::vector<profiler::Document> documents;
  const auto add = [&documents](StatusOr<std::vector<profiler::Document>> more) -> Status {
    HEADROOM_RETURN_IF_ERROR(more.status());
    std::move(more->begin(), more->end(), std::back_inserter(documents));
    return OkStatus();
  };
  if (!flags.texts.empty() && runtime.tokenizer() == nullptr) {
    return InvalidArgument(
        "--text: {} has no tokenizer; use --ids, or --text-bytes for a model of "
        "bytes",
        runtime.model_name());
  }
  for (const profiler::DocumentCut& cut : cuts) {
    for (const std::string& path : flags.texts) {
      HEADROOM_ASSIGN_OR_RETURN(const std::string text, profiler::ReadInput(path, "--text"));
      HEADROOM_RETURN_IF_ERROR(
          add(profiler::CutText(text, profiler::FileName(path), *runtime.tokenizer(), cut)));
    }
    for (const std::string& path : flags.byte_texts) {
      HEADROOM_ASSIGN_OR_RETURN(const std::string text, profiler::ReadInput(path, "--text-bytes"));
      HEADROOM_RETURN_IF_ERROR(add(profiler::CutBytes(text, profiler::FileName(path), cut)));
    }
  }
  // Documents of ids have their own lengths; the longest cut bounds them.
  const auto longest = std::max_element(cuts.begin(), cuts.end(), [](const auto& a, const auto& b) {
    return a.num_tokens < b.num_tokens;
  });
  for (const std::string& path : flags.id_files) {
    HEADROOM_ASSIGN_OR_RETURN(const std::string text, profiler::ReadInput(path, "--ids"));
    HEADROOM_RETURN_IF_ERROR(add(profiler::ParseIdDocuments(
        text, profiler::FileName(path), runtime.config().vocab_size, *longest)));
  }
  return documents;
}

StatusOr<std::vector<profiler::EvalRow>> MakeRows(const EvalFlags& flags, Runtime& runtime) {
  EvalGridFlags grid = flags.grid;
  grid.kv_dtype = flags.runtime.options.kv_dtype;
  HEADROOM_ASSIGN_OR_RETURN(grid.settings, ToBudgetFields(flags.settings));
  grid.settings.kv_min_prompt = grid.settings.kv_min_prompt.value_or(0);
  grid.settings.tsp_min_prompt = grid.settings.tsp_min_prompt.value_or(0);
  return MakeEvalRows(grid, runtime.policies(), runtime.backend().default_kv_dtype());
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
  settings.seed = flags.seed;
  return settings;
}

Status Measure(const EvalFlags& flags, Runtime& runtime, const Clock& clock,
               profiler::EvalObserver& observer, profiler::EvalReport* report) {
  HEADROOM_ASSIGN_OR_RETURN(report->rows, MakeRows(flags, runtime));
  HEADROOM_ASSIGN_OR_RETURN(const auto documents, ReadDocuments(flags, runtime));
  profiler::FidelityOptions options;
  options.continuation_tokens = static_cast<int32_t>(flags.continuation);
  HEADROOM_RETURN_IF_ERROR(profiler::CheckDocuments(documents, options, runtime.max_context()));
  report->settings = DescribeRun(flags, runtime);
  int32_t max_tokens = 1;
  for (const profiler::Document& document : documents) {
    max_tokens = std::max(max_tokens, static_cast<int32_t>(document.ids.size()));
  }
  const profiler::EvalModel model = {.model = runtime.transformer(),
                                     .backend = runtime.backend(),
                                     .policies = runtime.policies(),
                                     .clock = clock,
                                     .shape = runtime.shape(),
                                     .attention_scale = runtime.transformer().attention_scale(),
                                     .max_rows = flags.runtime.options.max_batch_rows};
  HEADROOM_ASSIGN_OR_RETURN(const auto caches,
                            profiler::CacheSet::Create(model, report->rows, max_tokens));
  report->fidelity.emplace();
  HEADROOM_RETURN_IF_ERROR(profiler::MeasureFidelity(documents, options, report->rows, *caches,
                                                     observer, &*report->fidelity));
  profiler::SummarizeFidelity(report->settings.num_resamples, flags.seed, &*report->fidelity);
  return OkStatus();
}

Status CheckFlags(const EvalFlags& flags) {
  HEADROOM_RETURN_IF_ERROR(FinishRuntimeFlags(flags.runtime));
  if (flags.texts.empty() && flags.byte_texts.empty() && flags.id_files.empty()) {
    return InvalidArgument("wanted something to measure on: --text, --text-bytes or --ids");
  }
  if (!flags.json.empty() && flags.json != "-") {
    HEADROOM_RETURN_IF_ERROR(profiler::CheckWritable(flags.json));
  }
  return OkStatus();
}

Status Write(const EvalFlags& flags, const profiler::EvalReport& report) {
  const std::string shown = flags.json == "-" ? JsonText(report) : TableText(report);
  std::fwrite(shown.data(), 1, shown.size(), stdout);
  if (!flags.json.empty() && flags.json != "-") {
    HEADROOM_RETURN_IF_ERROR(profiler::WriteFileAtomically(flags.json, JsonText(report)));
  }
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

void AddInputFlags(CLI::App* command, EvalFlags* flags) {
  const auto files = [command](const char* name, std::vector<std::string>* paths,
                               const char* help) {
    command->add_option(name, *paths, help)->delimiter(',')->allow_extra_args(false);
  };
  files("--text", &flags->texts, "text file to cut into documents; may be repeated");
  files("--text-bytes", &flags->byte_texts,
        "the same for a model whose ids are bytes (the needle models)");
  files("--ids", &flags->id_files, "JSON lines of token ids, a document each; may be repeated");
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

// Of the flags that other subcommands share: those that mean nothing here are taken away.
void AddGridFlags(CLI::App* command, EvalFlags* flags) {
  AddRuntimeFlags(command, &flags->runtime);
  AddBudgetFlags(command, &flags->settings);
  for (const char* name : {"--kv-memory-mib", "--kv-pages", "--max-running", "--max-queued",
                           "--step-time-ms", "--check-invariants", "--kv-policy", "--kv-retention",
                           "--tsp-ratio", "--kv-retention-tokens", "--tsp-tokens", "--kv-strict"}) {
    command->remove_option(command->get_option(name));
  }
  command->get_option("--kv-dtype")
      ->description(
          "types of the KV cache: auto (cpu: bf16, ref: f32), f32, bf16; the first one "
          "is the reference's");
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
  command->add_option("--theta", flags->grid.theta, "recovery targets of fastgen")
      ->capture_default_str();
}

}  // namespace

CommandRunner AddEvalCommand(CLI::App* command) {
  auto flags = std::make_shared<EvalFlags>();
  AddGridFlags(command, flags.get());
  flags->runtime.log_level = "warning";
  AddInputFlags(command, flags.get());
  command->add_option("--resamples", flags->resamples, "of the bootstrap behind the intervals")
      ->capture_default_str()
      ->check(CLI::Range(100, 1'000'000));
  command->add_option("--seed", flags->seed, "of the bootstrap and of generated prompts")
      ->capture_default_str();
  command->add_option("--json", flags->json, "write the results to this file; -: to stdout");
  command->add_flag("--quiet", flags->quiet, "no progress on stderr");
  return [flags] { return Eval(*flags); };
}

}  // namespace headroom::server
