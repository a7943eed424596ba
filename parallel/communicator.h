// SPDX-License-Identifier: Apache-2.0
// A group of ranks that talk to each other, with counters by purpose. All calls are collective over
// the group and in the same order on every rank, except post(), whose messages must match in pairs.
// Counts are 64 bit: larger messages than MPI's int counts are cut up inside.
//
// Tensors and messages lie in the host's memory for a group made by mpi_*, in the device's for one
// made by a backend (device_communicator.h). Such a group keeps the device's order without making
// the host wait: what it is given is read after all work enqueued on the device before the call, and
// work enqueued after a wait sees what arrived. Host values are the host's in both.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/tensor.h"

namespace bdlm {

class Activity;  // parallel/watchdog.h

/// What bytes are for. The plan predicts each of them; control is small and not predicted.
enum class Purpose : std::uint8_t {
  exchange_forward,    // keys and values
  exchange_recompute,  // the same, again in the backward pass
  exchange_gradient,   // their gradients
  tensor_rows,         // rows of the residual stream between the ranks of a tensor group
  pipeline_rows,       // rows between stages, and their gradients
  expert_rows,         // rows to their experts and back, and their gradients
  gradient_reduce,
  parameter_gather,
  control,
};
inline constexpr std::size_t purposes = 9;
const char* name_of(Purpose purpose);

/// Counters of this rank, shared by all of its communicators. Bytes are those that the operation
/// cannot do without, whatever the library does inside; what a rank sends itself counts nothing.
///   post            the messages
///   reduce_scatter  sent: whole - mine, received: (P - 1) * mine
///   all_gather      sent: (P - 1) * mine, received: whole - mine
///   host values     the values, once each way (control)
struct Traffic {
  struct Count {
    std::int64_t sent = 0, received = 0;
    std::int64_t calls = 0;   // that had something to send or to receive
    double wait_seconds = 0;  // blocked in the call: the exposed part
  };
  std::array<Count, purposes> by_purpose{};
  /// When set, communicators tell it what they block in; a Watchdog reads it.
  std::shared_ptr<Activity> activity;
  Count& at(Purpose purpose) { return by_purpose[static_cast<std::size_t>(purpose)]; }
};

struct Message {
  void* data = nullptr;
  std::int64_t bytes = 0;
  int peer = 0;
};
/// A contiguous matrix for, or from, a rank of the group.
inline Message message_of(const Tensor& rows, int peer) {
  return {rows.data, rows.size() * static_cast<std::int64_t>(size_of(rows.dtype)), peer};
}

/// Messages under way. Waiting is in any order; for a device's group it is the device that waits.
/// The destructor waits for what is left unless an exception is in flight. The messages' memory and the communicator must live that long.
class Transfer {
 public:
  virtual ~Transfer() = default;
  virtual void wait_receive(std::size_t i) = 0;  // i-th receive of post()
  virtual void wait_all() = 0;
  /// Lets the library move data; call it between pieces of computation.
  virtual void progress() = 0;
};

/// A transfer that was done when it was started.
class FinishedTransfer final : public Transfer {
 public:
  void wait_receive(std::size_t) override {}
  void wait_all() override {}
  void progress() override {}
};

enum class Reduce : std::uint8_t { sum, max, min };

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Starts all receives and sends; messages of zero bytes are left out on both sides. Not
  /// collective, but what one rank sends its peer must receive, in the same order a pair and
  /// purpose. A rank may send to itself.
  virtual std::unique_ptr<Transfer> post(std::span<const Message> receives,
                                         std::span<const Message> sends, Purpose purpose) = 0;
  /// A post of receives whose senders first work on what they have got from this rank, and give each
  /// of them with answer(). One expectation a group at a time. A group that keeps to the order of its
  /// calls must know: an answer that it waits for may not hold back those that it owes.
  virtual std::unique_ptr<Transfer> expect(std::span<const Message> receives, Purpose purpose) {
    return post(receives, {}, purpose);
  }
  virtual std::unique_ptr<Transfer> answer(std::span<const Message> sends, Purpose purpose) {
    return post({}, sends, purpose);
  }

  /// Flat [1, n] f64 or f32. `counts` elements of each rank: whole = all of them one after another.
  /// mine receives the sum over ranks of the own part of whole; mine may be that part of whole,
  /// then the rest of whole is overwritten. The order of addition depends on counts and group only.
  /// The tensors belong to the operation until the transfer has been waited for. NCCL works beside
  /// the device's computation; MPI is done when the call returns.
  virtual std::unique_ptr<Transfer> start_reduce_scatter(Tensor whole,
                                                         std::span<const std::int64_t> counts,
                                                         Tensor mine, Purpose purpose) = 0;
  /// whole receives everybody's part, any dtype; mine may be the own part of whole.
  virtual std::unique_ptr<Transfer> start_all_gather(Tensor mine,
                                                     std::span<const std::int64_t> counts,
                                                     Tensor whole, Purpose purpose) = 0;
  void reduce_scatter(Tensor whole, std::span<const std::int64_t> counts, Tensor mine,
                      Purpose purpose) {
    start_reduce_scatter(whole, counts, mine, purpose)->wait_all();
  }
  void all_gather(Tensor mine, std::span<const std::int64_t> counts, Tensor whole,
                  Purpose purpose) {
    start_all_gather(mine, counts, whole, purpose)->wait_all();
  }

  // Small host values: verdicts, counts, losses.
  virtual void all_reduce(std::span<double> values, Reduce op) = 0;
  virtual void all_reduce(std::span<std::int64_t> values, Reduce op) = 0;
  virtual void broadcast(std::string& bytes, int root) = 0;
  virtual std::vector<std::string> gather(const std::string& bytes, int root) = 0;  // root: by rank
  virtual void barrier() = 0;
};

/// Starts and ends MPI; one object in main. Thread support: funneled. Without a launcher it is a
/// world of one rank. Throws Error when a launcher meant more ranks than found each other. The
/// destructor ends MPI, but not while an exception is in flight: that could hang.
class MpiSession {
 public:
  MpiSession(int& argc, char**& argv);
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
  int rank() const { return rank_; }
  int size() const { return size_; }
  int local_size() const { return local_size_; }  // ranks on this machine
  /// Ends every rank of the job with this status. For an error that one rank alone has met.
  [[noreturn]] void abort(int status);

 private:
  bool owner_ = false;  // MPI was not initialised by somebody else
  int rank_ = 0, size_ = 1, local_size_ = 1;
};

/// This rank among those on the same machine. Collective over the world.
struct Locality {
  int rank = 0, size = 1;
  int node = 0;      // the lowest world rank of them: names the machine where host names do not
  std::string host;  // as the machine calls itself
};
Locality mpi_locality();

/// One sentence when the environment says that a launcher started several ranks but the world has
/// one, with the way out; else empty. `variable` looks up the environment (null: not set).
std::string launch_mistake(int world, const std::function<const char*(const char*)>& variable);

struct GroupOptions {
  std::string name = "world";        // in messages
  std::int64_t cut_bytes = 1 << 30;  // larger messages travel in pieces; below 2^31
};

/// The world, or a part of it: ranks with the same colour form a group, ordered by key. Collective
/// over the world. Every communicator has its own MPI_Comm, so messages of two never mix.
std::unique_ptr<Communicator> mpi_world(std::shared_ptr<Traffic> traffic,
                                        GroupOptions options = {});
std::unique_ptr<Communicator> mpi_split(int color, int key, std::shared_ptr<Traffic> traffic,
                                        GroupOptions options = {});

}  // namespace bdlm
