#include "profiler/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace headroom::profiler {
namespace {

std::string TemporaryName(const std::string& path) {
  return fmt::format("{}.{}.tmp", path, ::getpid());
}

Status CannotWrite(const std::string& path) {
  return InvalidArgument("cannot write {}: {}", path, std::strerror(errno));
}

StatusOr<int> OpenTemporary(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    return InvalidArgument("cannot write {}: it is a folder", path);
  }
  const int file =
      ::open(TemporaryName(path).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  return file >= 0 ? StatusOr<int>(file) : CannotWrite(path);
}

bool WriteAll(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written <= 0) {
      return false;
    }
    text.remove_prefix(static_cast<size_t>(written));
  }
  return ::fsync(file) == 0 || errno == EINVAL;  // EINVAL: a pipe or a device
}

}  // namespace

Status WriteFileAtomically(const std::string& path, std::string_view text) {
  HEADROOM_ASSIGN_OR_RETURN(const int file, OpenTemporary(path));
  const std::string temporary = TemporaryName(path);
  Status status;
  if (!WriteAll(file, text)) {
    status = CannotWrite(path);
  }
  if (::close(file) != 0 && status.ok()) {
    status = CannotWrite(path);
  }
  if (status.ok() && std::rename(temporary.c_str(), path.c_str()) != 0) {
    status = CannotWrite(path);
  }
  if (!status.ok()) {
    ::unlink(temporary.c_str());
  }
  return status;
}

Status CheckWritable(const std::string& path) {
  HEADROOM_ASSIGN_OR_RETURN(const int file, OpenTemporary(path));
  ::close(file);
  ::unlink(TemporaryName(path).c_str());
  return OkStatus();
}

}  // namespace headroom::profiler
