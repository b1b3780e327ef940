#include "base/available_memory.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

#include "base/cgroup.h"

namespace headroom {
namespace {

constexpr int64_t kUnknownMemoryBytes = int64_t{1} << 30;

std::string ReadAll(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

std::optional<int64_t> ParseMemAvailable(const std::string& proc_meminfo) {
  constexpr int64_t kMaxKib = int64_t{1} << 50;
  std::istringstream lines(proc_meminfo);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    int64_t kib = 0;
    if (words >> name >> kib && name == "MemAvailable:" && kib >= 0 && kib < kMaxKib) {
      return kib * 1024;
    }
  }
  return std::nullopt;
}

int64_t AvailableMemoryBytes() {
  const std::optional<int64_t> machine = ParseMemAvailable(ReadAll("/proc/meminfo"));
  const std::optional<int64_t> group =
      CgroupMemoryLeft(ReadAll("/proc/self/cgroup"), "/sys/fs/cgroup");
  if (machine && group) {
    return std::min(*machine, *group);
  }
  return machine.value_or(group.value_or(kUnknownMemoryBytes));
}

}  // namespace headroom
