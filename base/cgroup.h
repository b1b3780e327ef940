// What a container or service gives this process (cgroup v2 and v1).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace headroom {

// CPUs allowed by the tightest quota on the path from the process's cgroup up to the root, or
// nothing where no quota is set. `proc_self_cgroup` is the text of /proc/self/cgroup, `mount` the
// folder where cgroups are mounted (/sys/fs/cgroup). Unreadable or malformed files count as unset.
std::optional<double> CgroupCpuQuota(const std::string& proc_self_cgroup, const std::string& mount);

// Bytes left under the tightest memory limit on that path, limit less use, not below 0; nothing
// where no limit is set.
std::optional<int64_t> CgroupMemoryLeft(const std::string& proc_self_cgroup,
                                        const std::string& mount);

}  // namespace headroom
