// headroom bench engine: prefill and decode tokens per second, as a table and as JSON.
#include <cstdio>
#include <memory>

#include "base/clock.h"
#include "server/budget_resolver.h"
#include "server/cli/bench_engine.h"
#include "server/cli/cli.h"
#include "server/cli/commands.h"
#include "server/cli/common_flags.h"

namespace headroom::server {
namespace {

struct BenchFlags {
  RuntimeFlags runtime;
  BudgetFlags budget;
  std::string prefill = "512";
  std::string depth = "0,7500";
  std::string batch = "1,8";
  int64_t decode = 64;
  int64_t repeat = 3;
  std::string json;
  bool uses_defaults = false;  // neither --depth nor --batch was given
};

void PrintTable(const BenchReport& report) {
  std::printf("model %s, backend %s (%s), %lld threads, policy %s\n", report.model.c_str(),
              report.backend.c_str(), report.isa.c_str(), static_cast<long long>(report.threads),
              report.policy.c_str());
  std::printf("%-8s %8s %6s %9s %7s %12s %12s %9s\n", "test", "tokens", "batch", "retention", "tsp",
              "tok/s median", "tok/s best", "KV pages");
  for (const BenchRow& row : report.rows) {
    std::printf("%-8s %8lld %6lld %9s %7s %12.1f %12.1f %9lld\n", row.test.c_str(),
                static_cast<long long>(row.prompt_tokens), static_cast<long long>(row.batch),
                RatioText(row.retention_ppm).c_str(), RatioText(row.tsp_ppm).c_str(),
                row.tokens_per_s_median, row.tokens_per_s_best,
                static_cast<long long>(row.kv_pages));
  }
}

StatusOr<std::vector<int64_t>> NumbersInRange(const std::string& text, const std::string& flag,
                                              int64_t least) {
  HEADROOM_ASSIGN_OR_RETURN(auto numbers, ParseNumbers(text, flag));
  for (int64_t number : numbers) {
    if (number < least || number > 1 << 24) {
      return InvalidArgument("{}: got {}, wanted {} or more", flag, number, least);
    }
  }
  return numbers;
}

Status ToOptions(const BenchFlags& flags, BenchEngineOptions* options) {
  HEADROOM_RETURN_IF_ERROR(FinishRuntimeFlags(flags.runtime));
  options->runtime = flags.runtime.options;
  options->decode_tokens = flags.decode;
  options->repeat = flags.repeat;
  HEADROOM_ASSIGN_OR_RETURN(options->prefill_tokens, NumbersInRange(flags.prefill, "--prefill", 1));
  HEADROOM_ASSIGN_OR_RETURN(options->depths, NumbersInRange(flags.depth, "--depth", 0));
  HEADROOM_ASSIGN_OR_RETURN(options->batches, NumbersInRange(flags.batch, "--batch", 1));
  options->skip_what_does_not_fit = flags.uses_defaults;
  HEADROOM_ASSIGN_OR_RETURN(options->budget, ToBudgetFields(flags.budget));
  return OkStatus();
}

int Bench(const BenchFlags& flags) {
  BenchEngineOptions options;
  if (const Status ok = ToOptions(flags, &options); !ok.ok()) {
    return ReportError(ok);
  }
  SteadyClock clock;
  auto report = RunBenchEngine(options, clock);
  if (!report.ok()) {
    return ReportError(report.status());
  }
  for (const std::string& line : report->skipped) {
    std::fprintf(stderr, "left out: %s\n", line.c_str());
  }
  if (flags.json != "-") {
    PrintTable(*report);
  }
  if (!flags.json.empty()) {
    if (const Status written = WriteBenchJson(*report, flags.json); !written.ok()) {
      return ReportError(written);
    }
  }
  return kExitOk;
}

}  // namespace

CommandRunner AddBenchEngineCommand(CLI::App* command) {
  auto flags = std::make_shared<BenchFlags>();
  AddRuntimeFlags(command, &flags->runtime);
  flags->runtime.log_level = "warning";
  flags->runtime.options.threads = 1;
  command->add_option("--prefill", flags->prefill, "prompt lengths")->capture_default_str();
  command->add_option("--decode", flags->decode, "tokens to decode per sequence")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  CLI::Option* depth =
      command->add_option("--depth", flags->depth, "prompt tokens in front of decode")
          ->capture_default_str();
  CLI::Option* batch = command->add_option("--batch", flags->batch, "sequences that decode at once")
                           ->capture_default_str();
  command->add_option("--repeat", flags->repeat, "runs after a warm-up; the median counts")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  command->add_option("--json", flags->json, "write the results to this file; -: to stdout");
  AddBudgetFlags(command, &flags->budget);
  return [flags, depth, batch] {
    flags->uses_defaults = depth->count() == 0 && batch->count() == 0;
    return Bench(*flags);
  };
}

}  // namespace headroom::server
