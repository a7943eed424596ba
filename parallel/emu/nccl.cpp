// SPDX-License-Identifier: Apache-2.0
#ifdef BDLM_EMU
#include "parallel/emu/nccl.h"

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

struct ncclComm {
  MPI_Comm mpi = MPI_COMM_NULL;
  int rank = 0, size = 1;
  std::atomic<ncclResult_t> failed{ncclSuccess};
};

namespace {

/// Starts the operation; what it has not finished it adds to the requests.
using Operation = std::function<int(std::vector<MPI_Request>&)>;

struct Group {
  int depth = 0;
  std::vector<Operation> operations;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
};
thread_local Group group;

struct Work {
  ncclComm_t comm;
  std::vector<Operation> operations;
};

void run(void* data) {
  const std::unique_ptr<Work> work(static_cast<Work*>(data));
  std::vector<MPI_Request> requests;
  int status = MPI_SUCCESS;
  for (const Operation& operation : work->operations) {
    const int code = operation(requests);
    if (code != MPI_SUCCESS) status = code;
  }
  const int code =
      MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
  if (status != MPI_SUCCESS || code != MPI_SUCCESS) work->comm->failed = ncclInternalError;
}

ncclResult_t enqueue(ncclComm_t comm, cudaStream_t stream, std::vector<Operation> operations) {
  auto work = std::make_unique<Work>(Work{comm, std::move(operations)});
  return cudaLaunchHostFunc(stream, run, work.release()) == cudaSuccess ? ncclSuccess
                                                                         : ncclInternalError;
}

ncclResult_t add(ncclComm_t comm, cudaStream_t stream, Operation operation) {
  if (group.depth == 0) {
    std::vector<Operation> alone;
    alone.push_back(std::move(operation));
    return enqueue(comm, stream, std::move(alone));
  }
  if (!group.operations.empty() && (group.comm != comm || group.stream != stream))
    return ncclInvalidUsage;  // NCCL allows it; nobody here does it
  group.comm = comm;
  group.stream = stream;
  group.operations.push_back(std::move(operation));
  return ncclSuccess;
}

MPI_Datatype mpi_type(ncclDataType_t type) {
  return type == ncclDouble ? MPI_DOUBLE : type == ncclFloat ? MPI_FLOAT : MPI_BYTE;
}
int bytes_of(ncclDataType_t type) { return type == ncclDouble ? 8 : type == ncclFloat ? 4 : 1; }

/// What an id says: who rank 0 is and which communicator of it.
struct Meeting {
  int host = 0, number = 0;
};

}  // namespace

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static int made = 0;
  Meeting meeting{0, ++made};
  MPI_Comm_rank(MPI_COMM_WORLD, &meeting.host);
  std::memcpy(id->internal, &meeting, sizeof meeting);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  Meeting meeting;
  std::memcpy(&meeting, id.internal, sizeof meeting);
  const int tag = 20000 + meeting.number;
  std::vector<int> members(static_cast<std::size_t>(ranks));
  int self = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &self);
  if (rank == 0) {
    members[0] = self;
    for (int i = 1; i < ranks; ++i) {
      int pair[2];
      MPI_Recv(pair, 2, MPI_INT, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      members[static_cast<std::size_t>(pair[0])] = pair[1];
    }
    for (int i = 1; i < ranks; ++i)
      MPI_Send(members.data(), ranks, MPI_INT, members[static_cast<std::size_t>(i)], tag + 1,
               MPI_COMM_WORLD);
  } else {
    const int pair[2] = {rank, self};
    MPI_Send(pair, 2, MPI_INT, meeting.host, tag, MPI_COMM_WORLD);
    MPI_Recv(members.data(), ranks, MPI_INT, meeting.host, tag + 1, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
  }
  MPI_Group world, chosen;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_incl(world, ranks, members.data(), &chosen);
  auto made = std::make_unique<ncclComm>();
  made->rank = rank;
  made->size = ranks;
  const int code = MPI_Comm_create_group(MPI_COMM_WORLD, chosen, tag, &made->mpi);
  MPI_Group_free(&chosen);
  MPI_Group_free(&world);
  *comm = made.release();
  return code == MPI_SUCCESS ? ncclSuccess : ncclInternalError;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  MPI_Comm_free(&comm->mpi);
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  delete comm;  // others may not answer: the MPI communicator stays
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  *error = comm->failed;
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
  if (--group.depth > 0 || group.operations.empty()) return ncclSuccess;
  return enqueue(group.comm, group.stream, std::exchange(group.operations, {}));
}

ncclResult_t ncclSend(const void* data, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, [=](std::vector<MPI_Request>& requests) {
    // Synchronous: NCCL's send may wait for its receive, so an order that counts on buffers fails.
    return MPI_Issend(data, static_cast<int>(count), mpi_type(type), peer, 0, comm->mpi,
                      &requests.emplace_back());
  });
}

ncclResult_t ncclRecv(void* data, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, [=](std::vector<MPI_Request>& requests) {
    return MPI_Irecv(data, static_cast<int>(count), mpi_type(type), peer, 0, comm->mpi,
                     &requests.emplace_back());
  });
}

ncclResult_t ncclReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t, int root, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, [=](std::vector<MPI_Request>&) {
    const bool in_place = comm->rank == root && send == receive;
    return MPI_Reduce(in_place ? MPI_IN_PLACE : send, receive, static_cast<int>(count),
                      mpi_type(type), MPI_SUM, root, comm->mpi);
  });
}

ncclResult_t ncclBroadcast(const void* send, void* receive, std::size_t count,
                           ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, [=](std::vector<MPI_Request>&) {
    if (comm->rank == root && send != receive)
      std::memcpy(receive, send, count * static_cast<std::size_t>(bytes_of(type)));
    return MPI_Bcast(receive, static_cast<int>(count), mpi_type(type), root, comm->mpi);
  });
}

ncclResult_t ncclReduceScatter(const void* send, void* receive, std::size_t count,
                               ncclDataType_t type, ncclRedOp_t, ncclComm_t comm,
                               cudaStream_t stream) {
  return add(comm, stream, [=](std::vector<MPI_Request>&) {
    return MPI_Reduce_scatter_block(send, receive, static_cast<int>(count), mpi_type(type),
                                    MPI_SUM, comm->mpi);
  });
}

ncclResult_t ncclAllGather(const void* send, void* receive, std::size_t count,
                           ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, [=](std::vector<MPI_Request>&) {
    const std::size_t bytes = count * static_cast<std::size_t>(bytes_of(type));
    const bool in_place = send == static_cast<char*>(receive) +
                                      static_cast<std::size_t>(comm->rank) * bytes;
    return MPI_Allgather(in_place ? MPI_IN_PLACE : send, static_cast<int>(count), mpi_type(type),
                         receive, static_cast<int>(count), mpi_type(type), comm->mpi);
  });
}
#endif
