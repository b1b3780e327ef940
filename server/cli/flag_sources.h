// Where a flag's value comes from: the command line, then HEADROOM_<FLAG>, then the config file.
//
// The config file is INI-like: `[serve]` (or `[bench engine]`) and `flag-name = value` lines, `#`
// comments, values optionally in double quotes. Unknown sections and keys are errors that name the
// nearest known one.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"

namespace headroom::server {

struct ConfigEntry {
  std::string value;
  int line = 0;
};
// Section -> flag name -> entry.
using ConfigFile = std::map<std::string, std::map<std::string, ConfigEntry>>;

StatusOr<ConfigFile> ReadConfigFile(const std::string& path);

// Takes `--config FILE` or `--config=FILE` out of the arguments, wherever it stands; else
// HEADROOM_CONFIG; else empty.
StatusOr<std::string> TakeConfigPath(std::vector<std::string>* arguments);

// Gives every option of `command` that the command line did not set its value from the environment
// or the file. `path` is the subcommand's name in the file.
Status ApplySources(CLI::App& command, const std::string& path, const ConfigFile& config,
                    const std::string& config_path);

// Every section must be one of `known`.
Status CheckSections(const ConfigFile& config, const std::vector<std::string>& known,
                     const std::string& config_path);

// The known name nearest to `name` by edit distance.
std::string NearestName(const std::string& name, const std::vector<std::string>& known);

// A CLI11 validator: a finite decimal, as people write it.
CLI::Validator FiniteDecimal();

}  // namespace headroom::server
