// SPDX-License-Identifier: Apache-2.0
// Nonblocking messages between the ranks of a group.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>

#include "kernels/error.h"
#include "parallel/mpi_group.h"

namespace bdlm {
namespace {

class MpiTransfer final : public Transfer {
 public:
  MpiTransfer(MpiGroup& group, std::span<const Message> receives, std::span<const Message> sends,
              Purpose purpose)
      : group_(group), purpose_(purpose), exceptions_(std::uncaught_exceptions()) {
    std::int64_t sent = 0, received = 0;
    receive_end_.reserve(receives.size());
    for (const Message& message : receives) {
      received += start(message, /*send=*/false);
      receive_end_.push_back(requests_.size());
    }
    receives_ = requests_.size();
    for (const Message& message : sends) sent += start(message, /*send=*/true);
    if (requests_.empty()) return;
    indices_.resize(requests_.size());
    statuses_.resize(requests_.size());
    auto& count = group_.traffic->at(purpose);
    count.sent += sent;
    count.received += received;
    count.calls += 1;
  }

  ~MpiTransfer() override {
    if (std::uncaught_exceptions() > exceptions_) return;  // the job ends; waiting could hang
    try {
      wait_all();
    } catch (const std::exception& error) {
      spdlog::critical("{}", error.what());  // a destructor cannot pass it on
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
  }

  MpiTransfer(const MpiTransfer&) = delete;
  MpiTransfer& operator=(const MpiTransfer&) = delete;

  void wait_receive(std::size_t i) override {
    wait(i == 0 ? 0 : receive_end_[i - 1], receive_end_[i], "wait_receive");
  }

  void wait_all() override { wait(0, requests_.size(), "wait_all"); }

  void progress() override { reap(0, requests_.size(), MPI_Testsome, "MPI_Testsome"); }

 private:
  /// Posts the pieces of one message and returns the bytes that go to or come from another rank.
  std::int64_t start(const Message& message, bool send) {
    for (std::int64_t at = 0; at < message.bytes; at += group_.cut_bytes) {
      const int bytes = static_cast<int>(std::min(group_.cut_bytes, message.bytes - at));
      void* data = static_cast<std::byte*>(message.data) + at;
      const int tag = static_cast<int>(purpose_);
      requests_.push_back(MPI_REQUEST_NULL);
      pieces_.push_back({bytes, message.peer});
      if (send) {
        check_mpi(
            MPI_Isend(data, bytes, MPI_BYTE, message.peer, tag, group_.comm, &requests_.back()),
            "MPI_Isend", group_);
      } else {
        check_mpi(
            MPI_Irecv(data, bytes, MPI_BYTE, message.peer, tag, group_.comm, &requests_.back()),
            "MPI_Irecv", group_);
      }
    }
    return message.peer == group_.rank ? 0 : message.bytes;
  }

  void wait(std::size_t first, std::size_t end, const char* operation) {
    if (!reap(first, end, MPI_Testsome, "MPI_Testsome")) return;
    outstanding_.clear();
    std::int64_t bytes = 0;
    for (std::size_t i = first; i < end; ++i) {
      if (requests_[i] == MPI_REQUEST_NULL) continue;
      outstanding_.push_back(group_.world_ranks[static_cast<std::size_t>(pieces_[i].peer)]);
      bytes += pieces_[i].bytes;
    }
    if (outstanding_.empty()) return;
    const Blocked blocked(group_, operation, purpose_, group_.collectives, bytes, outstanding_);
    while (reap(first, end, MPI_Waitsome, "MPI_Waitsome")) {
    }
  }

  /// Ends pieces that have arrived or left. False: none of the range was under way.
  bool reap(std::size_t first, std::size_t end, decltype(&MPI_Testsome) some, const char* name) {
    int done = 0;
    const int code = some(static_cast<int>(end - first), requests_.data() + first, &done,
                          indices_.data(), statuses_.data());
    if (code != MPI_ERR_IN_STATUS) check_mpi(code, name, group_);
    if (done == MPI_UNDEFINED) return false;
    for (int k = 0; k < done; ++k) {
      const std::size_t i = first + static_cast<std::size_t>(indices_[static_cast<std::size_t>(k)]);
      MPI_Status& status = statuses_[static_cast<std::size_t>(k)];
      const bool receive = i < receives_;
      if (code == MPI_ERR_IN_STATUS) {
        check_mpi(status.MPI_ERROR, receive ? "MPI_Irecv" : "MPI_Isend", group_);
      }
      int bytes = 0;
      if (receive) MPI_Get_count(&status, MPI_BYTE, &bytes);
      // A message that is too short is no error to MPI, but it is one of the plan.
      require(!receive || bytes == pieces_[i].bytes,
              "rank {} of group {} expected {} bytes ({}) from its rank {} and received {}: the "
              "ranks follow different plans, check that all run the same build and run file",
              group_.rank, group_.name, pieces_[i].bytes, name_of(purpose_), pieces_[i].peer,
              bytes);
    }
    return true;
  }

  struct Piece {
    int bytes = 0, peer = 0;
  };

  MpiGroup& group_;
  Purpose purpose_;
  int exceptions_;
  std::vector<MPI_Request> requests_;     // receives, then sends; null when done
  std::vector<Piece> pieces_;             // of requests_
  std::vector<std::size_t> receive_end_;  // end of the i-th receive's pieces
  std::size_t receives_ = 0;              // pieces that are receives
  std::vector<int> outstanding_, indices_;
  std::vector<MPI_Status> statuses_;
};

}  // namespace

std::unique_ptr<Transfer> post_messages(MpiGroup& group, std::span<const Message> receives,
                                        std::span<const Message> sends, Purpose purpose) {
  return std::make_unique<MpiTransfer>(group, receives, sends, purpose);
}

}  // namespace bdlm
