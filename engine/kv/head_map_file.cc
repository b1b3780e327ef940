#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "engine/kv/head_map.h"

namespace headroom::engine {
namespace {

// Read, not mapped: a file that shrinks under a mapping kills the reader.
StatusOr<std::string> ReadAll(int file, const std::string& path) {
  struct stat info {};
  if (::fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) {
    return InvalidArgument("{}: wanted a regular file", path);
  }
  std::string text;
  std::string buffer(size_t{1} << 16, '\0');
  while (true) {
    const ssize_t count = ::read(file, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      return InvalidArgument("{}: cannot read: {}", path, std::strerror(errno));
    }
    if (count == 0) {
      return text;
    }
    text.append(buffer, 0, static_cast<size_t>(count));
    if (text.size() > kMaxHeadMapBytes) {
      return InvalidArgument("{}: got more than {} bytes, too many for a head map", path,
                             kMaxHeadMapBytes);
    }
  }
}

}  // namespace

StatusOr<HeadMap> LoadHeadMap(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) {
    const int error = errno;
    const std::string reason = std::strerror(error);
    return error == ENOENT ? NotFound("{}: {}", path, reason)
                           : InvalidArgument("{}: {}", path, reason);
  }
  const StatusOr<std::string> text = ReadAll(file, path);
  ::close(file);
  HEADROOM_RETURN_IF_ERROR(text.status());
  StatusOr<HeadMap> map = ParseHeadMap(*text);
  if (!map.ok()) {
    return InvalidArgument("{}: {}", path, StatusMessage(map.status()));
  }
  return map;
}

}  // namespace headroom::engine
