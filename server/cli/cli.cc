#include "server/cli/cli.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include "server/cli/commands.h"
#include "server/cli/flag_sources.h"

namespace headroom::server {
namespace {

struct Command {
  std::string path;  // as in the config file: "serve", "bench engine"
  CLI::App* app = nullptr;
  CommandRunner run;
};

// The flag nearest to an unexpected argument, as a hint.
std::string Suggest(const Command& command, const std::vector<std::string>& arguments) {
  std::vector<std::string> known;
  for (const CLI::Option* option : command.app->get_options()) {
    for (const std::string& name : option->get_lnames()) {
      known.push_back("--" + name);
    }
  }
  for (const std::string& argument : arguments) {
    const std::string name = argument.substr(0, argument.find('='));
    if (name.starts_with("--") && std::find(known.begin(), known.end(), name) == known.end()) {
      return fmt::format("; did you mean {}?", NearestName(name, known));
    }
  }
  return "";
}

// What is wrong with a command line of which no subcommand could be taken.
std::string UnknownCommand(const CLI::App& app, const std::vector<std::string>& arguments,
                           const std::string& otherwise) {
  std::vector<std::string> known;
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->parsed()) {
      // Below "bench" and "headmap" stand further commands.
      const auto name = std::find(arguments.begin(), arguments.end(), command->get_name());
      return command->get_subcommands({}).empty() || name == arguments.end()
                 ? otherwise
                 : UnknownCommand(*command, {name + 1, arguments.end()}, otherwise);
    }
    known.push_back(command->get_name());
  }
  for (const std::string& argument : arguments) {
    if (!argument.starts_with("-")) {
      return fmt::format("{}: no such subcommand; did you mean {}?", argument,
                         NearestName(argument, known));
    }
  }
  return otherwise;
}

std::vector<Command> AddCommands(CLI::App& app) {
  std::vector<Command> commands;
  // `path` begins with the parent's name, where that is not the program.
  const auto add = [&commands](CLI::App* parent, const std::string& path, const char* help,
                               CommandRunner (*make)(CLI::App*)) {
    CLI::App* command = parent->add_subcommand(path.substr(path.rfind(' ') + 1), help);
    commands.push_back({path, command, make(command)});
  };
  add(&app, "serve", "Serve a model over HTTP", AddServeCommand);
  add(&app, "generate", "One prompt from the command line, streamed", AddGenerateCommand);
  add(&app, "inspect", "What a model file holds", AddInspectCommand);
  add(&app, "tokenize", "Text to token ids and back", AddTokenizeCommand);
  CLI::App* bench = app.add_subcommand("bench", "Measure speed");
  bench->require_subcommand(1);
  add(bench, "bench engine", "Prefill and decode speed at depth", AddBenchEngineCommand);
  add(&app, "eval", "Quality under compression against the full cache", AddEvalCommand);
  add(&app, "profile", "Type every KV head; writes a head map", AddProfileCommand);
  CLI::App* maps =
      app.add_subcommand("headmap", "Show, compare, derive, check and export head maps");
  maps->require_subcommand(1);
  add(maps, "headmap show", "Types, budgets, TSP layer and validation of a map",
      AddHeadMapShowCommand);
  add(maps, "headmap diff", "Heads whose type differs between two maps; exit status 1 if any",
      AddHeadMapDiffCommand);
  add(maps, "headmap derive", "The types for another recovery target", AddHeadMapDeriveCommand);
  add(maps, "headmap check",
      "Does a map fit a model? Hashes, with --prompts also its heads; exit status 1 if not",
      AddHeadMapCheckCommand);
  add(maps, "headmap export", "A map in the formats of DuoAttention and kvpress",
      AddHeadMapExportCommand);
  return commands;
}

int Run(std::vector<std::string> arguments) {
  CLI::App app{
      "Headroom: an LLM inference server whose KV cache adapts to each head and each request.\n"
      "Every flag is also an environment variable, HEADROOM_FLAG_NAME, and a key of the file named "
      "by --config,\nunder [subcommand]. Order: flag, environment, file, default."};
  app.name("headroom");
  app.set_version_flag("--version", std::string("headroom ") + HEADROOM_VERSION);
  app.require_subcommand(1);
  std::string shown_only;
  app.add_option("--config", shown_only, "config file; may stand anywhere");

  const std::vector<Command> commands = AddCommands(app);

  auto config_path = TakeConfigPath(&arguments);
  if (!config_path.ok()) {
    return ReportError(config_path.status());
  }
  const std::vector<std::string> original = arguments;
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
  try {
    app.parse(arguments);
  } catch (const CLI::Success& success) {
    return app.exit(success);  // --help, --version
  } catch (const CLI::ParseError& error) {
    std::string hint;
    for (const Command& command : commands) {
      if (command.app->parsed()) {
        hint = Suggest(command, original);
      }
    }
    std::fprintf(stderr, "headroom: error: %s%s\nRun headroom --help for the commands.\n",
                 UnknownCommand(app, original, error.what()).c_str(), hint.c_str());
    return kExitConfiguration;
  }

  ConfigFile config;
  if (!config_path->empty()) {
    auto read = ReadConfigFile(*config_path);
    if (!read.ok()) {
      return ReportError(read.status());
    }
    config = std::move(read).value();
  }
  std::vector<std::string> sections;
  for (const Command& command : commands) {
    sections.push_back(command.path);
  }
  if (const Status known = CheckSections(config, sections, *config_path); !known.ok()) {
    return ReportError(known);
  }
  for (const Command& command : commands) {
    if (command.app->parsed()) {
      const Status applied = ApplySources(*command.app, command.path, config, *config_path);
      return applied.ok() ? command.run() : ReportError(applied);
    }
  }
  return kExitConfiguration;
}

}  // namespace

int ReportError(const Status& status) {
  std::fprintf(stderr, "headroom: error: %s\n", StatusMessage(status).c_str());
  return status.code() == StatusCode::kInternal ? kExitInternal : kExitConfiguration;
}

int RunCli(int argc, char** argv) {
  try {
    return Run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "headroom: internal error: %s\n", error.what());
    return kExitInternal;
  }
}

}  // namespace headroom::server
