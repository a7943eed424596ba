// SPDX-License-Identifier: Apache-2.0
// Communicator on MPI. What exceeds cut_bytes, and so may exceed an int count, takes a slower path:
// rank by rank, in pieces.
#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>
#include <numeric>

#include "kernels/error.h"
#include "parallel/mpi_group.h"

namespace bdlm {
namespace {

MPI_Op operation_of(Reduce op) {
  return op == Reduce::sum ? MPI_SUM : op == Reduce::max ? MPI_MAX : MPI_MIN;
}

MPI_Datatype number_type(DType dtype) {
  require(dtype != DType::bf16, "sums across ranks are kept in f32 or f64, not in bf16");
  return dtype == DType::f64 ? MPI_DOUBLE : MPI_FLOAT;
}

std::byte* bytes_at(void* data, std::int64_t offset) {
  return static_cast<std::byte*>(data) + offset;
}

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(MPI_Comm comm, std::shared_ptr<Traffic> traffic, const GroupOptions& options)
      : group_(make_group(comm, std::move(traffic), options)),
        exceptions_(std::uncaught_exceptions()) {}

  ~MpiCommunicator() override {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized == 0 && std::uncaught_exceptions() == exceptions_) MPI_Comm_free(&group_.comm);
  }

  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;

  int rank() const override { return group_.rank; }
  int size() const override { return group_.size; }

  std::unique_ptr<Transfer> post(std::span<const Message> receives, std::span<const Message> sends,
                                 Purpose purpose) override {
    return post_messages(group_, receives, sends, purpose);
  }

  std::unique_ptr<Transfer> start_reduce_scatter(Tensor whole,
                                                 std::span<const std::int64_t> counts, Tensor mine,
                                                 Purpose purpose) override {
    reduce_parts(whole, counts, mine, purpose);
    return std::make_unique<FinishedTransfer>();
  }

  std::unique_ptr<Transfer> start_all_gather(Tensor mine, std::span<const std::int64_t> counts,
                                             Tensor whole, Purpose purpose) override {
    gather_parts(mine, counts, whole, purpose);
    return std::make_unique<FinishedTransfer>();
  }

  void all_reduce(std::span<double> values, Reduce op) override {
    all_reduce(values.data(), values.size_bytes(), values.size(), MPI_DOUBLE, op);
  }

  void all_reduce(std::span<std::int64_t> values, Reduce op) override {
    all_reduce(values.data(), values.size_bytes(), values.size(), MPI_INT64_T, op);
  }

  void broadcast(std::string& bytes, int root) override {
    auto size = static_cast<std::int64_t>(bytes.size());
    if (group_.size == 1) return;
    const Blocked blocked = block("broadcast", Purpose::control, size);
    check_mpi(MPI_Bcast(&size, 1, MPI_INT64_T, root, group_.comm), "MPI_Bcast", group_);
    bytes.resize(static_cast<std::size_t>(size));
    broadcast_pieces(bytes.data(), size, root);
    const bool sends = group_.rank == root;
    count_collective(Purpose::control, sends ? size : 0, sends ? 0 : size);
  }

  std::vector<std::string> gather(const std::string& bytes, int root) override {
    const auto size = static_cast<std::int64_t>(bytes.size());
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(group_.size));
    {
      const Blocked blocked = block("gather", Purpose::control, size);
      check_mpi(MPI_Gather(&size, 1, MPI_INT64_T, sizes.data(), 1, MPI_INT64_T, root, group_.comm),
                "MPI_Gather", group_);
    }
    std::vector<std::string> all;
    std::vector<Message> receives, sends;
    if (group_.rank == root) {
      all.resize(sizes.size());
      for (int r = 0; r < group_.size; ++r) {
        auto& text = all[static_cast<std::size_t>(r)];
        if (r == root) {
          text = bytes;
          continue;
        }
        text.resize(static_cast<std::size_t>(sizes[static_cast<std::size_t>(r)]));
        receives.push_back({text.data(), static_cast<std::int64_t>(text.size()), r});
      }
    } else {
      sends.push_back({const_cast<char*>(bytes.data()), size, root});
    }
    post(receives, sends, Purpose::control)->wait_all();
    return all;
  }

  void barrier() override {
    if (group_.size == 1) return;
    const Blocked blocked = block("barrier", Purpose::control, 0);
    check_mpi(MPI_Barrier(group_.comm), "MPI_Barrier", group_);
  }

 private:
  struct Parts {
    std::int64_t total = 0, offset = 0, mine = 0;  // elements
  };

  Parts check_parts(const Tensor& whole, std::span<const std::int64_t> counts, const Tensor& mine,
                    const char* operation) const {
    require(counts.size() == static_cast<std::size_t>(group_.size),
            "{} over {} ranks of group {} was given {} counts", operation, group_.size, group_.name,
            counts.size());
    const auto own = counts.begin() + group_.rank;
    const Parts parts{std::accumulate(counts.begin(), counts.end(), std::int64_t{0}),
                      std::accumulate(counts.begin(), own, std::int64_t{0}), *own};
    require(whole.contiguous() && mine.contiguous() && whole.size() == parts.total &&
                mine.size() == parts.mine && (mine.empty() || whole.dtype == mine.dtype),
            "{} in group {}: the parts sum to {} elements, {} of them own, but the tensors hold {} "
            "and {} (flat and of one dtype?)",
            operation, group_.name, parts.total, parts.mine, whole.size(), mine.size());
    return parts;
  }

  void reduce_parts(const Tensor& whole, std::span<const std::int64_t> counts, const Tensor& mine,
                    Purpose purpose) {
    const Parts parts = check_parts(whole, counts, mine, "reduce_scatter");
    const MPI_Datatype type = number_type(whole.dtype);
    const auto element = static_cast<std::int64_t>(size_of(whole.dtype));
    if (parts.total == 0) return;
    count_collective(purpose, (parts.total - parts.mine) * element,
                     (group_.size - 1) * parts.mine * element);
    void* own = bytes_at(whole.data, parts.offset * element);
    const auto own_bytes = static_cast<std::size_t>(parts.mine * element);
    if (group_.size == 1) {
      if (mine.data != own) std::memcpy(mine.data, own, own_bytes);
      return;
    }
    const Blocked blocked = block("reduce_scatter", purpose, parts.total * element);
    if (parts.total * element > group_.cut_bytes) {
      reduce_to_each(whole, counts, mine, type, element);
    } else if (mine.data != own) {
      check_mpi(MPI_Reduce_scatter(whole.data, mine.data, int_counts(counts, 1).data(), type,
                                   MPI_SUM, group_.comm),
                "MPI_Reduce_scatter", group_);
    } else {
      // In place, MPI leaves the result at the start of the buffer.
      check_mpi(MPI_Reduce_scatter(MPI_IN_PLACE, whole.data, int_counts(counts, 1).data(), type,
                                   MPI_SUM, group_.comm),
                "MPI_Reduce_scatter", group_);
      std::memmove(own, whole.data, own_bytes);
    }
  }

  void gather_parts(const Tensor& mine, std::span<const std::int64_t> counts, const Tensor& whole,
                    Purpose purpose) {
    const Parts parts = check_parts(whole, counts, mine, "all_gather");
    const auto element = static_cast<std::int64_t>(size_of(whole.dtype));
    if (parts.total == 0) return;
    count_collective(purpose, (group_.size - 1) * parts.mine * element,
                     (parts.total - parts.mine) * element);
    void* own = bytes_at(whole.data, parts.offset * element);
    if (mine.data != own && parts.mine > 0) {
      std::memcpy(own, mine.data, static_cast<std::size_t>(parts.mine * element));
    }
    if (group_.size == 1) return;
    const Blocked blocked = block("all_gather", purpose, parts.total * element);
    if (parts.total * element > group_.cut_bytes) {
      broadcast_from_each(whole, counts, element);
      return;
    }
    const std::vector<int> sizes = int_counts(counts, element);
    std::vector<int> offsets(sizes.size());
    std::exclusive_scan(sizes.begin(), sizes.end(), offsets.begin(), 0);
    check_mpi(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, whole.data, sizes.data(),
                             offsets.data(), MPI_BYTE, group_.comm),
              "MPI_Allgatherv", group_);
  }

  Blocked block(const char* operation, Purpose purpose, std::int64_t bytes) {
    return {group_, operation, purpose, ++group_.collectives, bytes, group_.world_ranks};
  }

  void count_collective(Purpose purpose, std::int64_t sent, std::int64_t received) {
    if (group_.size == 1) return;
    auto& count = group_.traffic->at(purpose);
    count.sent += sent;
    count.received += received;
    count.calls += 1;
  }

  static std::vector<int> int_counts(std::span<const std::int64_t> counts, std::int64_t element) {
    std::vector<int> sizes(counts.size());
    std::transform(counts.begin(), counts.end(), sizes.begin(),
                   [element](std::int64_t n) { return static_cast<int>(n * element); });
    return sizes;
  }

  void reduce_to_each(const Tensor& whole, std::span<const std::int64_t> counts, const Tensor& mine,
                      MPI_Datatype type, std::int64_t element) {
    const std::int64_t most = group_.cut_bytes / element;
    std::int64_t offset = 0;
    for (int root = 0; root < group_.size; ++root) {
      const std::int64_t count = counts[static_cast<std::size_t>(root)];
      for (std::int64_t at = 0; at < count; at += most) {
        const void* from = bytes_at(whole.data, (offset + at) * element);
        void* to = group_.rank == root ? bytes_at(mine.data, at * element) : nullptr;
        const int piece = static_cast<int>(std::min(most, count - at));
        check_mpi(MPI_Reduce(from == to ? MPI_IN_PLACE : from, to, piece, type, MPI_SUM, root,
                             group_.comm),
                  "MPI_Reduce", group_);
      }
      offset += count;
    }
  }

  void broadcast_from_each(const Tensor& whole, std::span<const std::int64_t> counts,
                           std::int64_t element) {
    std::int64_t offset = 0;
    for (int root = 0; root < group_.size; ++root) {
      const std::int64_t bytes = counts[static_cast<std::size_t>(root)] * element;
      broadcast_pieces(bytes_at(whole.data, offset), bytes, root);
      offset += bytes;
    }
  }

  void broadcast_pieces(void* data, std::int64_t bytes, int root) {
    for (std::int64_t at = 0; at < bytes; at += group_.cut_bytes) {
      const int piece = static_cast<int>(std::min(group_.cut_bytes, bytes - at));
      check_mpi(MPI_Bcast(bytes_at(data, at), piece, MPI_BYTE, root, group_.comm), "MPI_Bcast",
                group_);
    }
  }

  void all_reduce(void* values, std::size_t bytes, std::size_t count, MPI_Datatype type,
                  Reduce op) {
    if (group_.size == 1 || count == 0) return;
    require(count <= static_cast<std::size_t>(std::numeric_limits<int>::max()),
            "all_reduce is for small host values, not for {} of them", count);
    const auto payload = static_cast<std::int64_t>(bytes);
    count_collective(Purpose::control, payload, payload);
    const Blocked blocked = block("all_reduce", Purpose::control, payload);
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, values, static_cast<int>(count), type, operation_of(op),
                            group_.comm),
              "MPI_Allreduce", group_);
  }

  MpiGroup group_;
  int exceptions_;
};

}  // namespace

std::unique_ptr<Communicator> mpi_world(std::shared_ptr<Traffic> traffic, GroupOptions options) {
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup", options.name, 0);
  return std::make_unique<MpiCommunicator>(comm, std::move(traffic), options);
}

std::unique_ptr<Communicator> mpi_split(int color, int key, std::shared_ptr<Traffic> traffic,
                                        GroupOptions options) {
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(MPI_COMM_WORLD, color, key, &comm), "MPI_Comm_split", options.name, 0);
  return std::make_unique<MpiCommunicator>(comm, std::move(traffic), options);
}

}  // namespace bdlm
