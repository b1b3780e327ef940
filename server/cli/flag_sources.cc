#include "server/cli/flag_sources.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace headroom::server {
namespace {

std::string Trim(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string::npos) {
    return "";
  }
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

// A value without its quotes or its trailing comment.
std::string Unquote(const std::string& text) {
  if (text.size() >= 2 && text.front() == '"') {
    const size_t close = text.find('"', 1);
    if (close != std::string::npos) {
      return text.substr(1, close - 1);
    }
  }
  const size_t comment = text.find(" #");
  return Trim(text.substr(0, comment));
}

size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) {
    row[j] = j;
  }
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

// The long name of an option, or the positional's; without dashes.
std::string FlagName(const CLI::Option& option) {
  if (!option.get_lnames().empty()) {
    return option.get_lnames().front();
  }
  return option.get_name(/*positional=*/true);
}

std::string EnvironmentName(const std::string& flag) {
  std::string name = "HEADROOM_" + flag;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
    return c == '-' ? '_' : static_cast<char>(std::toupper(c));
  });
  return name;
}

Status SetOption(CLI::Option& option, const std::string& value, const std::string& where) {
  try {
    option.add_result(value);
    option.run_callback();
  } catch (const CLI::Error& error) {
    return InvalidArgument("{}: {}", where, error.what());
  }
  return OkStatus();
}

}  // namespace

StatusOr<ConfigFile> ReadConfigFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    return NotFound("--config: cannot open {}", path);
  }
  ConfigFile config;
  std::string section;
  std::string text;
  for (int line = 1; std::getline(file, text); ++line) {
    const std::string trimmed = Trim(text);
    if (trimmed.empty() || trimmed[0] == '#' || trimmed[0] == ';') {
      continue;
    }
    if (trimmed[0] == '[') {
      const size_t close = trimmed.find(']');
      if (close == std::string::npos) {
        return InvalidArgument("{}:{}: a section has no closing bracket", path, line);
      }
      section = Trim(trimmed.substr(1, close - 1));
      config[section];
      continue;
    }
    const size_t equals = trimmed.find('=');
    if (equals == std::string::npos || section.empty()) {
      return InvalidArgument("{}:{}: wanted `flag = value` under a [subcommand]", path, line);
    }
    const std::string key = Trim(trimmed.substr(0, equals));
    const ConfigEntry entry{Unquote(Trim(trimmed.substr(equals + 1))), line};
    if (!config[section].emplace(key, entry).second) {
      return InvalidArgument("{}:{}: {} is set twice", path, line, key);
    }
  }
  return config;
}

StatusOr<std::string> TakeConfigPath(std::vector<std::string>* arguments) {
  std::string path;
  const char* environment = std::getenv("HEADROOM_CONFIG");
  path = environment == nullptr ? "" : environment;
  for (size_t i = 0; i < arguments->size(); ++i) {
    const std::string argument = (*arguments)[i];
    if (argument == "--config") {
      if (i + 1 >= arguments->size()) {
        return InvalidArgument("--config: wanted a file");
      }
      path = (*arguments)[i + 1];
      arguments->erase(arguments->begin() + static_cast<int64_t>(i),
                       arguments->begin() + static_cast<int64_t>(i) + 2);
      --i;
    } else if (argument.starts_with("--config=")) {
      path = argument.substr(9);
      arguments->erase(arguments->begin() + static_cast<int64_t>(i));
      --i;
    }
  }
  return path;
}

Status ApplySources(CLI::App& command, const std::string& path, const ConfigFile& config,
                    const std::string& config_path) {
  std::vector<std::string> known;
  std::map<std::string, CLI::Option*> options;
  for (CLI::Option* option : command.get_options()) {
    const std::string name = FlagName(*option);
    if (name != "help") {
      known.push_back(name);
      options[name] = option;
    }
  }
  std::map<std::string, ConfigEntry> entries;
  if (const auto section = config.find(path); section != config.end()) {
    entries = section->second;
  }
  for (const auto& [name, entry] : entries) {
    if (options.count(name) == 0) {
      return InvalidArgument("{}:{}: unknown key {} in [{}]; did you mean {}?", config_path,
                             entry.line, name, path, NearestName(name, known));
    }
  }
  for (const auto& [name, option] : options) {
    if (option->count() > 0) {
      continue;
    }
    const std::string environment = EnvironmentName(name);
    if (const char* value = std::getenv(environment.c_str()); value != nullptr) {
      HEADROOM_RETURN_IF_ERROR(SetOption(*option, value, environment));
    } else if (const auto entry = entries.find(name); entry != entries.end()) {
      HEADROOM_RETURN_IF_ERROR(SetOption(
          *option, entry->second.value, fmt::format("{}:{}", config_path, entry->second.line)));
    }
  }
  return OkStatus();
}

Status CheckSections(const ConfigFile& config, const std::vector<std::string>& known,
                     const std::string& config_path) {
  for (const auto& [section, entries] : config) {
    if (std::find(known.begin(), known.end(), section) == known.end()) {
      return InvalidArgument("{}: unknown section [{}]; did you mean [{}]?", config_path, section,
                             NearestName(section, known));
    }
  }
  return OkStatus();
}

std::string NearestName(const std::string& name, const std::vector<std::string>& known) {
  return *std::min_element(known.begin(), known.end(),
                           [&](const std::string& a, const std::string& b) {
                             return EditDistance(name, a) < EditDistance(name, b);
                           });
}

CLI::Validator FiniteDecimal() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        size_t i = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
        size_t digits = 0;
        size_t dots = 0;
        for (; i < text.size(); ++i) {
          digits += text[i] >= '0' && text[i] <= '9' ? 1 : 0;
          dots += text[i] == '.' ? 1 : 0;
          if (text[i] != '.' && !(text[i] >= '0' && text[i] <= '9')) {
            digits = 0;
            break;
          }
        }
        return digits > 0 && dots <= 1 ? "" : "wanted a finite decimal number such as 0.25";
      },
      "DECIMAL");
}

}  // namespace headroom::server
