// headroom headmap show|diff|derive|export: head maps without their model.
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "engine/kv/head_map.h"
#include "profiler/atomic_file.h"
#include "profiler/derive.h"
#include "profiler/evaluation/text_table.h"
#include "profiler/head_map_diff.h"
#include "profiler/head_map_export.h"
#include "profiler/profile_report.h"
#include "server/budget_resolver.h"
#include "server/cli/cli.h"
#include "server/cli/commands.h"

namespace headroom::server {
namespace {

using engine::HeadMap;
using engine::PpmText;

struct HeadMapFlags {
  std::string map;
  std::string other;  // diff
  std::string theta;  // derive
  std::string format = "duo";
  std::string out;
};

StatusOr<HeadMap> Load(const std::string& path) {
  if (path.empty()) {
    return InvalidArgument("map: wanted a file of schema headmap/1");
  }
  return engine::LoadHeadMap(path);
}

// Exit status of a command that ends with `status`.
int Ended(const Status& status, int code = kExitOk) {
  return status.ok() ? code : ReportError(status);
}

Status Print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    return InvalidArgument("cannot write to stdout: {}", std::strerror(errno));
  }
  return OkStatus();
}

std::string SpendText(const HeadMap& map) {
  std::string text =
      "\nWhat budgets are spent for: retention -> share of the elastic pool that goes "
      "to dense heads\n";
  profiler::TextTable table({"prefer", "dense share", "local share", "layers by"});
  for (const engine::SpendPlan& plan : map.spend) {
    std::string points;
    for (const engine::SpendPoint& point : plan.points) {
      points += fmt::format("{}{} -> {}", points.empty() ? "" : ", ", PpmText(point.retention_ppm),
                            PpmText(point.dense_share_ppm));
    }
    table.Add({plan.prefer, points, PpmText(plan.local_share_ppm),
               plan.layers_by_demand ? "demand" : "heads"});
  }
  return text + table.Text();
}

std::string HashText(const HeadMap& map) {
  std::string text =
      fmt::format("\nmap          {}\nweights      {} ({})\narchitecture {}\n", map.hash,
                  map.model.weights_hash, map.model.weights_dtype, map.model.arch_hash);
  text += fmt::format("vocabulary   {}\n",
                      map.tokenizer.vocab_hash.empty() ? "none" : map.tokenizer.vocab_hash);
  for (const std::string& hash : map.bound) {
    text += fmt::format("bound to     {}\n", hash);
  }
  return text;
}

Status Show(const HeadMapFlags& flags) {
  HEADROOM_ASSIGN_OR_RETURN(const HeadMap map, Load(flags.map));
  profiler::ProfileNotes notes;
  for (const engine::MapCorpus& part : map.profile.corpus) {
    notes.num_prompts += part.prompts;
  }
  return Print(profiler::TableText({.map = map, .notes = notes}) + SpendText(map) + HashText(map));
}

// `differ`: whether any head has another type.
Status Diff(const HeadMapFlags& flags, bool* differ) {
  HEADROOM_ASSIGN_OR_RETURN(const HeadMap before, Load(flags.map));
  HEADROOM_ASSIGN_OR_RETURN(const HeadMap after, Load(flags.other));
  HEADROOM_ASSIGN_OR_RETURN(const auto flips, profiler::DiffHeadMaps(before, after));
  *differ = !flips.empty();
  return Print(profiler::DiffText(before, after, flips));
}

Status Derive(const HeadMapFlags& flags) {
  if (flags.out.empty()) {
    return InvalidArgument("--out: wanted the file that the derived map is written to");
  }
  const auto theta = ParseRatioPpm(flags.theta);
  if (!theta.has_value() || *theta < 1 || *theta > engine::kPpm) {
    return InvalidArgument("--theta: wanted a ratio in (0, 1] with at most six decimal places");
  }
  HEADROOM_ASSIGN_OR_RETURN(const HeadMap map, Load(flags.map));
  HEADROOM_ASSIGN_OR_RETURN(const HeadMap derived, profiler::DeriveHeadMap(map, *theta));
  HEADROOM_RETURN_IF_ERROR(engine::ValidateHeadMap(derived));
  const std::string text = engine::WriteHeadMap(derived);
  HEADROOM_RETURN_IF_ERROR(profiler::WriteFileAtomically(flags.out, text));
  HEADROOM_ASSIGN_OR_RETURN(const HeadMap written, engine::ParseHeadMap(text));
  HEADROOM_ASSIGN_OR_RETURN(const auto flips, profiler::DiffHeadMaps(map, written));
  return Print(profiler::DiffText(map, written, flips));
}

Status MakeFolder(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) != 0 && errno != EEXIST) {
    return InvalidArgument("--out: cannot make the folder {}: {}", path, std::strerror(errno));
  }
  return OkStatus();
}

Status Export(const HeadMapFlags& flags) {
  if (flags.format != "duo" && flags.format != "kvpress") {
    return InvalidArgument("--format: got {}, wanted duo or kvpress", flags.format);
  }
  HEADROOM_ASSIGN_OR_RETURN(const HeadMap map, Load(flags.map));
  if (flags.format == "kvpress") {
    const std::string text = profiler::KvpressPattern(map);
    return flags.out.empty() ? Print(text) : profiler::WriteFileAtomically(flags.out, text);
  }
  if (flags.out.empty()) {
    return InvalidArgument("--out: wanted the folder that the two files are written to");
  }
  HEADROOM_RETURN_IF_ERROR(MakeFolder(flags.out));
  HEADROOM_RETURN_IF_ERROR(profiler::WriteFileAtomically(flags.out + "/full_attention_heads.tsv",
                                                         profiler::DuoScores(map)));
  return profiler::WriteFileAtomically(flags.out + "/config.json", profiler::DuoConfig(map));
}

std::shared_ptr<HeadMapFlags> AddMap(CLI::App* command) {
  auto flags = std::make_shared<HeadMapFlags>();
  command->add_option("map", flags->map, "head map, of `headroom profile`")->type_name("FILE");
  return flags;
}

}  // namespace

CommandRunner AddHeadMapShowCommand(CLI::App* command) {
  auto flags = AddMap(command);
  return [flags] { return Ended(Show(*flags)); };
}

CommandRunner AddHeadMapDiffCommand(CLI::App* command) {
  auto flags = AddMap(command);
  command->add_option("other", flags->other, "the map to compare with")->type_name("FILE");
  return [flags] {
    bool differ = false;
    const Status status = Diff(*flags, &differ);
    return Ended(status, differ ? kExitDiffers : kExitOk);
  };
}

CommandRunner AddHeadMapDeriveCommand(CLI::App* command) {
  auto flags = AddMap(command);
  command->add_option("--theta", flags->theta, "the new recovery target, (0, 1]");
  command->add_option("-o,--out", flags->out, "write the map to this file")->type_name("FILE");
  return [flags] { return Ended(Derive(*flags)); };
}

CommandRunner AddHeadMapExportCommand(CLI::App* command) {
  auto flags = AddMap(command);
  command->add_option("--format", flags->format, "duo (a folder) or kvpress (a JSON file)")
      ->capture_default_str();
  command->add_option("-o,--out", flags->out, "write to this folder or file; kvpress: else stdout")
      ->type_name("PATH");
  return [flags] { return Ended(Export(*flags)); };
}

}  // namespace headroom::server
