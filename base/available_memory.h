// Memory that this process may still take.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace headroom {

// MemAvailable of the text of /proc/meminfo, in bytes: page cache that can be dropped counts.
std::optional<int64_t> ParseMemAvailable(const std::string& proc_meminfo);

// The smaller of the machine's available memory and what is left under the cgroup's limits;
// 1 GiB where neither can be read.
int64_t AvailableMemoryBytes();

}  // namespace headroom
