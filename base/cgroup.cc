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

std::optional<double> QuotaOfFolder(const std::string& folder, bool is_v2) {
  if (is_v2) {
    std::ifstream file(folder + "/cpu.max");
    return QuotaOf(file, file);
  }
  std::ifstream quota(folder + "/cpu.cfs_quota_us");
  std::ifstream period(folder + "/cpu.cfs_period_us");
  return QuotaOf(quota, period);
}

// The tightest quota from `path` (relative to `root`, starting with '/') up to `root` itself.
std::optional<double> TightestQuota(const std::string& root, std::string path, bool is_v2) {
  std::optional<double> tightest;
  for (;;) {
    if (const std::optional<double> quota = QuotaOfFolder(root + path, is_v2)) {
      tightest = std::min(tightest.value_or(*quota), *quota);
    }
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) {
      return tightest;
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

}  // namespace

std::optional<double> CgroupCpuQuota(const std::string& proc_self_cgroup,
                                     const std::string& mount) {
  std::optional<double> tightest;
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
    if (!is_v2 && !ListHolds(controllers, "cpu")) {
      continue;
    }
    const std::string root = is_v2 ? mount : mount + "/cpu";
    if (const auto quota = TightestQuota(root, line.substr(second + 1), is_v2)) {
      tightest = std::min(tightest.value_or(*quota), *quota);
    }
  }
  return tightest;
}

}  // namespace headroom
