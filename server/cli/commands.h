// The subcommands. Each registers its flags and returns what to run once they are set.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "base/status.h"

namespace headroom::server {

// Runs the command and returns its exit code.
using CommandRunner = std::function<int()>;

CommandRunner AddServeCommand(CLI::App* command);
CommandRunner AddGenerateCommand(CLI::App* command);
CommandRunner AddInspectCommand(CLI::App* command);
CommandRunner AddTokenizeCommand(CLI::App* command);
CommandRunner AddBenchEngineCommand(CLI::App* command);
CommandRunner AddHeadMapShowCommand(CLI::App* command);
CommandRunner AddHeadMapDiffCommand(CLI::App* command);
CommandRunner AddHeadMapDeriveCommand(CLI::App* command);
CommandRunner AddHeadMapExportCommand(CLI::App* command);
CommandRunner AddHeadMapCheckCommand(CLI::App* command);
CommandRunner AddEvalCommand(CLI::App* command);
CommandRunner AddProfileCommand(CLI::App* command);

// Prints "headroom: error: ..." and returns the exit code that fits the status.
int ReportError(const Status& status);

}  // namespace headroom::server
