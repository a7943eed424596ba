// SPDX-License-Identifier: Apache-2.0
#ifdef BDLM_EMU
#include "parallel/emu/pipes.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "kernels/error.h"

namespace bdlm::emu {

/// Zeroed memory is an empty one.
struct Pipes::Pipe {
  static constexpr std::size_t room = 16384;
  std::atomic<std::uint64_t> written, read;
  char bytes[room];
};

std::string Pipes::make() {
  static std::atomic<int> made = 0;
  const std::string path = fmt::format("/bdlm-nccl-{}-{}", ::getpid(), ++made);
  const int file = ::shm_open(path.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600);
  require(file >= 0, "emulated NCCL: no shared memory {}: {}", path, std::strerror(errno));
  ::close(file);
  return path;
}

Pipes::Pipes(const std::string& path, int ranks, int rank) : ranks_(ranks), rank_(rank) {
  // One more pipe than there are pairs: its counter tells who is the last to come.
  bytes_ = static_cast<std::size_t>(ranks * ranks + 1) * sizeof(Pipe);
  const int file = ::shm_open(path.c_str(), O_RDWR, 0600);
  require(file >= 0, "emulated NCCL: no shared memory {}: {}", path, std::strerror(errno));
  const bool sized = ::ftruncate(file, static_cast<off_t>(bytes_)) == 0;
  memory_ = MAP_FAILED;
  if (sized) memory_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  require(memory_ != MAP_FAILED, "emulated NCCL: {} bytes of shared memory: {}", bytes_,
          std::strerror(errno));
  if (++pipe(ranks, 0).written == static_cast<std::uint64_t>(ranks)) ::shm_unlink(path.c_str());
}

Pipes::~Pipes() { ::munmap(memory_, bytes_); }

Pipes::Pipe& Pipes::pipe(int from, int to) const {
  return static_cast<Pipe*>(memory_)[from * ranks_ + to];
}

std::size_t Pipes::write(int to, const void* data, std::size_t bytes) {
  Pipe& p = pipe(rank_, to);
  const std::uint64_t at = p.written;
  std::size_t n = std::min(bytes, Pipe::room - static_cast<std::size_t>(at - p.read));
  const std::size_t begin = at % Pipe::room, first = std::min(n, Pipe::room - begin);
  std::memcpy(p.bytes + begin, data, first);
  std::memcpy(p.bytes, static_cast<const char*>(data) + first, n - first);
  p.written = at + n;
  return n;
}

std::size_t Pipes::read(int from, void* data, std::size_t bytes) {
  Pipe& p = pipe(from, rank_);
  const std::uint64_t at = p.read;
  const std::size_t n = std::min(bytes, static_cast<std::size_t>(p.written - at));
  const std::size_t begin = at % Pipe::room, first = std::min(n, Pipe::room - begin);
  std::memcpy(data, p.bytes + begin, first);
  std::memcpy(static_cast<char*>(data) + first, p.bytes, n - first);
  p.read = at + n;
  return n;
}

std::uint64_t Pipes::written(int to) const { return pipe(rank_, to).written; }
std::uint64_t Pipes::fetched(int to) const { return pipe(rank_, to).read; }

}  // namespace bdlm::emu
#endif
