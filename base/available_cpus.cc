#include <sched.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>

#include "base/cgroup.h"
#include "base/thread_pool.h"

namespace headroom {
namespace {

int AffinityCpus() {
  // The kernel refuses a mask smaller than its own: grow until it fits.
  for (int num_bits = CPU_SETSIZE; num_bits <= 1 << 20; num_bits *= 2) {
    cpu_set_t* mask = CPU_ALLOC(num_bits);
    if (mask == nullptr) {
      break;
    }
    const size_t mask_bytes = CPU_ALLOC_SIZE(num_bits);
    const bool fits = ::sched_getaffinity(0, mask_bytes, mask) == 0;
    const int num_cpus = fits ? CPU_COUNT_S(mask_bytes, mask) : 0;
    CPU_FREE(mask);
    if (fits) {
      return num_cpus;
    }
  }
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

int AvailableCpus() {
  int num_cpus = std::max(1, AffinityCpus());
  std::ifstream file("/proc/self/cgroup");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (const std::optional<double> quota = CgroupCpuQuota(text, "/sys/fs/cgroup")) {
    // Rounded down: one thread more than the quota pays for freezes all of them every period.
    num_cpus = static_cast<int>(std::clamp(*quota, 1.0, static_cast<double>(num_cpus)));
  }
  return num_cpus;
}

}  // namespace headroom
