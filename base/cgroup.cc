#include "base/cgroup.h"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace headroom {
namespace {

std::optional<double> QuotaOf(std::istream& quota_text, std::istream& period_text) {
  double quota = 0;
  double period = 0;
  // "max" (v2) fails to parse and -1 (v1) is negative: both mean no quota.
  if (!(quota_text >> quota) || !(period_text >> period) || quota <= 0 || period <= 0) {
    return std::nullopt;
  }
  return quota / period;
}

std::optional<double> CpusOfFolder(const std::string& folder, bool is_v2) {
  if (is_v2) {
    std::ifstream file(folder + "/cpu.max");
    return QuotaOf(file, file);
  }
  std::ifstream quota(folder + "/cpu.cfs_quota_us");
  std::ifstream period(folder + "/cpu.cfs_period_us");
  return QuotaOf(quota, period);
}

std::optional<int64_t> MemoryLeftOfFolder(const std::string& folder, bool is_v2) {
  std::ifstream limit_file(folder + (is_v2 ? "/memory.max" : "/memory.limit_in_bytes"));
  std::ifstream usage_file(folder + (is_v2 ? "/memory.current" : "/memory.usage_in_bytes"));
  int64_t limit = 0;
  int64_t usage = 0;
  // "max" (v2) fails to parse; v1 says "no limit" by a number near 2^63.
  if (!(limit_file >> limit) || !(usage_file >> usage) || limit < 0 || usage < 0 ||
      limit > (int64_t{1} << 60)) {
    return std::nullopt;
  }
  return std::max<int64_t>(limit - usage, 0);
}

// The least of what `read` finds from `path` (relative to `root`, starting with '/') up to `root`.
template <typename T>
std::optional<T> LeastUpwards(const std::string& root, std::string path, bool is_v2,
                              std::optional<T> (*read)(const std::string&, bool)) {
  std::optional<T> least;
  for (;;) {
    if (const std::optional<T> found = read(root + path, is_v2)) {
      least = std::min(least.value_or(*found), *found);
    }
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) {
      return least;
    }
    path.resize(slash);
  }
}

bool ListHolds(const std::string& comma_list, const std::string& word) {
  std::istringstream list(comma_list);
  for (std::string item; std::getline(list, item, ',');) {
    if (item == word) {
      return true;
    }
  }
  return false;
}

// The least over the process's cgroups that `controller` governs.
template <typename T>
std::optional<T> LeastOfProcess(const std::string& proc_self_cgroup, const std::string& mount,
                                const std::string& controller,
                                std::optional<T> (*read)(const std::string&, bool)) {
  std::optional<T> least;
  std::istringstream lines(proc_self_cgroup);
  for (std::string line; std::getline(lines, line);) {
    // hierarchy-id:controllers:path; v2 has id 0 and no controllers.
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_v2 = controllers.empty();
    if (!is_v2 && !ListHolds(controllers, controller)) {
      continue;
    }
    const std::string root = is_v2 ? mount : mount + "/" + controller;
    if (const auto found = LeastUpwards<T>(root, line.substr(second + 1), is_v2, read)) {
      least = std::min(least.value_or(*found), *found);
    }
  }
  return least;
}

}  // namespace

std::optional<double> CgroupCpuQuota(const std::string& proc_self_cgroup,
                                     const std::string& mount) {
  return LeastOfProcess<double>(proc_self_cgroup, mount, "cpu", CpusOfFolder);
}

std::optional<int64_t> CgroupMemoryLeft(const std::string& proc_self_cgroup,
                                        const std::string& mount) {
  return LeastOfProcess<int64_t>(proc_self_cgroup, mount, "memory", MemoryLeftOfFolder);
}

}  // namespace headroom
