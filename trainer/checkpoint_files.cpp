// SPDX-License-Identifier: Apache-2.0
// POSIX calls with their errno kept.
#include "trainer/checkpoint_files.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "kernels/error.h"

namespace bdlm {
namespace {

std::string remedy_for(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "free space there, lower checkpoint.keep or set run.folder to another disk";
    case EFBIG:
      return "raise the limit on file sizes (ulimit -f)";
    case EACCES:
    case EPERM:
    case EROFS:
      return "make the folder writable or set run.folder to one that is";
    case ENOENT:
      return "the run folder must stay where it is, on a file system that all ranks share";
    case EMFILE:
    case ENFILE:
      return "raise the limit on open files (ulimit -n)";
    case EIO:
    case ESTALE:
      return "look at the file system's health";
    default:
      return {};
  }
}

/// Closes on every way out; on the good one close() is checked, because NFS reports there.
class FileDescriptor {
 public:
  FileDescriptor(const std::string& doing, const std::string& path, int flags)
      : path_(path), descriptor_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {
    if (descriptor_ < 0) fail("{}", system_message(doing, path_, errno));
  }
  ~FileDescriptor() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;

  int get() const { return descriptor_; }

  void sync() {
    // EINVAL: a file system that cannot flush a folder, and need not
    if (::fsync(descriptor_) != 0 && errno != EINVAL) {
      fail("{}", system_message("flush", path_, errno));
    }
  }
  void close() {
    const int status = ::close(descriptor_);
    descriptor_ = -1;
    if (status != 0) fail("{}", system_message("close", path_, errno));
  }

 private:
  std::string path_;
  int descriptor_;
};

}  // namespace

std::string system_message(const std::string& doing, const std::string& path, int error) {
  const std::string remedy = doing == "read" ? "" : remedy_for(error);
  return fmt::format("cannot {} {}: {}{}{}", doing, path, std::strerror(error),
                     remedy.empty() ? "" : "; ", remedy);
}

void sync_path(const std::string& path) {
  FileDescriptor file("flush", path, O_RDONLY);
  file.sync();
  file.close();
}

void write_file(const std::string& path, const std::string& text) {
  FileDescriptor file("write", path, O_WRONLY | O_CREAT | O_TRUNC);
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(file.get(), text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("{}", system_message("write", path, errno));
    done += static_cast<std::size_t>(n);
  }
  file.close();
}

void replace_file(const std::string& path, const std::string& text) {
  const std::string fresh = path + ".new";
  write_file(fresh, text);
  sync_path(fresh);
  rename_durably(fresh, path);
}

void check_file_limit(const std::string& path, std::int64_t bytes) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  if (static_cast<std::uint64_t>(bytes) > limit.rlim_cur)
    fail("{}", system_message("write", path, EFBIG));
}

std::string read_file(const std::string& path) {
  FileDescriptor file("read", path, O_RDONLY);
  std::string text;
  char part[1 << 16];
  for (;;) {
    const ssize_t n = ::read(file.get(), part, sizeof(part));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("{}", system_message("read", path, errno));
    if (n == 0) return text;
    text.append(part, static_cast<std::size_t>(n));
  }
}

void rename_durably(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) {
    fail("{}", system_message("rename", from, errno));
  }
  sync_path(std::filesystem::path(to).parent_path().string());
}

}  // namespace bdlm
