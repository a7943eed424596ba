// SPDX-License-Identifier: Apache-2.0
// Every operation is made of sends and receives, which a piece of work tries until all are done.
#ifdef BDLM_EMU
#include "parallel/emu/nccl.h"

#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/emu/queues.h"
#include "parallel/emu/own_motion.h"
#include "parallel/emu/pipes.h"

using bdlm::emu::Pipes;
using bdlm::emu::Progress;

struct ncclComm {
  std::shared_ptr<Pipes> pipes;
  bdlm::emu::OwnMotion device;
};

namespace {

std::size_t size_of(ncclDataType_t type) {
  return type == ncclDouble ? 8 : type == ncclFloat ? 4 : 1;
}

/// One send or receive. NCCL's send may wait for its receive, so it is done when it has been read:
/// an order that counts on buffers fails.
struct Step {
  bool sends = false;
  int peer = 0;
  char* data = nullptr;
  std::size_t bytes = 0, at = 0;
  std::uint64_t end = 0;  // of a send, among all that the peer gets
  bool moved(Pipes& pipes) {
    if (at < bytes) {
      at += sends ? pipes.write(peer, data + at, bytes - at)
                  : pipes.read(peer, data + at, bytes - at);
      if (at < bytes) return false;
      if (sends) end = pipes.written(peer);
    }
    return !sends || pipes.fetched(peer) >= end;
  }
};

/// What a sum is made of once everything has arrived: in rank order.
struct Sum {
  ncclDataType_t type = ncclFloat;
  std::size_t count = 0;
  const char* mine = nullptr;
  std::vector<std::vector<char>> parts;  // by rank; the own one is empty
  char* to = nullptr;

  template <class T>
  void add(int rank) const {
    std::vector<T> total(count, T(0)), part(count);
    for (std::size_t r = 0; r < parts.size(); ++r) {
      std::memcpy(part.data(), static_cast<int>(r) == rank ? mine : parts[r].data(),
                  count * sizeof(T));
      for (std::size_t i = 0; i < count; ++i) total[i] += part[i];
    }
    std::memcpy(to, total.data(), count * sizeof(T));
  }
};

struct Group {
  int depth = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<Step> steps;
  std::vector<std::unique_ptr<Sum>> sums;
};
thread_local Group group;

struct Operation {
  std::shared_ptr<Pipes> pipes;
  std::vector<Step> steps;
  std::vector<std::unique_ptr<Sum>> sums;

  Progress operator()() {
    if (pipes->given_up) return Progress::done;
    // Of the steps of a pipe only the first that is not done may move.
    std::vector<bool> busy(static_cast<std::size_t>(2 * pipes->ranks()), false);
    bool all = true;
    for (Step& step : steps) {
      const auto pipe = static_cast<std::size_t>(2 * step.peer + (step.sends ? 1 : 0));
      if (busy[pipe] || step.moved(*pipes)) continue;
      busy[pipe] = true;
      all = false;
    }
    if (!all) return Progress::waits;
    for (const auto& sum : sums)
      sum->type == ncclDouble ? sum->add<double>(pipes->rank()) : sum->add<float>(pipes->rank());
    return Progress::done;
  }
};

ncclResult_t enqueue(Group made) {
  if (made.steps.empty() && made.sums.empty()) return ncclSuccess;
  Operation operation{made.comm->pipes, std::move(made.steps), std::move(made.sums)};
  return bdlm::emu::queues().push(made.stream, std::move(operation)) == cudaSuccess
             ? ncclSuccess
             : ncclInternalError;
}

/// Adds what `fill` puts into the group, which is one of its own outside of ncclGroupStart.
template <class Fill>
ncclResult_t add(ncclComm_t comm, cudaStream_t stream, Fill fill) {
  if (group.depth > 0 && group.comm != nullptr && (group.comm != comm || group.stream != stream))
    return ncclInvalidUsage;  // NCCL allows it; nobody here does it
  group.comm = comm;
  group.stream = stream;
  fill(*comm->pipes);
  return group.depth > 0 ? ncclSuccess : enqueue(std::exchange(group, {}));
}

void send(int peer, const void* data, std::size_t bytes) {
  group.steps.push_back({true, peer, static_cast<char*>(const_cast<void*>(data)), bytes});
}
void receive(int peer, void* data, std::size_t bytes) {
  group.steps.push_back({false, peer, static_cast<char*>(data), bytes});
}

/// Everybody's part [count] to `root`.
void reduce(Pipes& pipes, const void* part, void* to, std::size_t count, ncclDataType_t type,
            int root) {
  const std::size_t bytes = count * size_of(type);
  if (pipes.rank() != root) return send(root, part, bytes);
  auto sum = std::make_unique<Sum>(
      Sum{type, count, static_cast<const char*>(part), {}, static_cast<char*>(to)});
  for (int r = 0; r < pipes.ranks(); ++r) {
    std::vector<char>& theirs = sum->parts.emplace_back(r == root ? 0 : bytes);
    if (r != root) receive(r, theirs.data(), bytes);
  }
  group.sums.push_back(std::move(sum));
}

void broadcast(Pipes& pipes, const void* from, void* to, std::size_t bytes, int root) {
  if (pipes.rank() != root) return receive(root, to, bytes);
  for (int r = 0; r < pipes.ranks(); ++r)
    if (r != root) send(r, from, bytes);
  if (from == to) return;
  send(root, from, bytes);
  receive(root, to, bytes);
}

}  // namespace

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) try {
  const std::string path = Pipes::make();
  std::memcpy(id->internal, path.c_str(), path.size() + 1);
  return ncclSuccess;
} catch (const std::exception&) {
  return ncclInternalError;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) try {
  auto made = std::make_unique<ncclComm>();
  made->pipes = std::make_shared<Pipes>(id.internal, ranks, rank);
  *comm = made.release();
  return ncclSuccess;
} catch (const std::exception&) {
  return ncclInternalError;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm != nullptr) comm->pipes->given_up = true;
  return ncclCommDestroy(comm);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* error) {
  *error = ncclSuccess;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess ? "no error" : "emulated NCCL error";
}
const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (group.depth == 0) return ncclInvalidUsage;
  return --group.depth > 0 ? ncclSuccess : enqueue(std::exchange(group, {}));
}

ncclResult_t ncclSend(const void* data, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, [&](Pipes&) { send(peer, data, count * size_of(type)); });
}

ncclResult_t ncclRecv(void* data, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, [&](Pipes&) { receive(peer, data, count * size_of(type)); });
}

ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t, int root, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, [&](Pipes& pipes) { reduce(pipes, from, to, count, type, root); });
}

ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream,
             [&](Pipes& pipes) { broadcast(pipes, from, to, count * size_of(type), root); });
}

ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, [&](Pipes& pipes) {
    const std::size_t bytes = count * size_of(type);
    for (int root = 0; root < pipes.ranks(); ++root)
      reduce(pipes, static_cast<const char*>(from) + static_cast<std::size_t>(root) * bytes, to,
             count, type, root);
  });
}

ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, [&](Pipes& pipes) {
    const std::size_t bytes = count * size_of(type);
    for (int root = 0; root < pipes.ranks(); ++root) {
      char* const part = static_cast<char*>(to) + static_cast<std::size_t>(root) * bytes;
      broadcast(pipes, root == pipes.rank() ? from : part, part, bytes, root);
    }
  });
}
#endif
