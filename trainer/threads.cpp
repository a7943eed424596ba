// SPDX-License-Identifier: Apache-2.0
// Placement of ranks on cores and OpenMP's number of threads.
#include "trainer/threads.h"

#include <fmt/format.h>
#include <omp.h>
#include <sched.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <sstream>

namespace bdlm {
namespace {

std::string to_line(const Placement& placement) {
  std::string line = fmt::format("{} {}", placement.host, placement.online);
  for (int core : placement.cores) line += fmt::format(" {}", core);
  return line;
}

Placement from_line(const std::string& line) {
  std::istringstream words(line);
  Placement placement;
  words >> placement.host >> placement.online;
  for (int core = 0; words >> core;) placement.cores.push_back(core);
  return placement;
}

bool overlap(const std::vector<int>& a, const std::vector<int>& b) {
  std::vector<int> both;
  std::ranges::set_intersection(a, b, std::back_inserter(both));
  return !both.empty();
}

int neighbours(const std::vector<Placement>& ranks, std::size_t rank) {
  return static_cast<int>(std::ranges::count_if(ranks, [&](const Placement& other) {
    return other.host == ranks[rank].host && overlap(other.cores, ranks[rank].cores);
  }));
}

}  // namespace

Placement own_placement() {
  Placement placement;
  std::array<char, 256> name{};
  placement.host = gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "host";
  placement.online = std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
  // A fixed cpu_set_t ends at 1024 cores; larger machines exist.
  for (int cores = CPU_SETSIZE; cores <= 64 * CPU_SETSIZE; cores *= 2) {
    const std::size_t size = CPU_ALLOC_SIZE(cores);
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(cores),
                                                               [](cpu_set_t* s) { CPU_FREE(s); });
    if (set == nullptr || sched_getaffinity(0, size, set.get()) != 0) continue;
    for (int core = 0; core < cores; ++core) {
      if (CPU_ISSET_S(core, size, set.get())) placement.cores.push_back(core);
    }
    break;
  }
  return placement;
}

int fair_threads(const std::vector<Placement>& ranks, std::size_t rank) {
  const int cores = static_cast<int>(ranks[rank].cores.size());
  return std::max(1, cores / std::max(1, neighbours(ranks, rank)));
}

std::string binding_problem(const std::vector<Placement>& ranks) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const Placement& at = ranks[rank];
    if (at.cores.size() != 1 || at.online == 1) continue;
    const int sharing = neighbours(ranks, rank);
    const auto local = static_cast<int>(std::ranges::count(ranks, at.host, &Placement::host));
    const std::string way_out =
        "start with mpirun --bind-to none, or srun --cpus-per-task=N, to use them";
    if (sharing > 1) {
      return fmt::format("{} ranks on {} share core {}, one of {}: {}", sharing, at.host,
                         at.cores.front(), at.online, way_out);
    }
    if (local < at.online) {
      return fmt::format(
          "rank {} is bound to one of the {} cores of {}, whose {} rank{} leave{} "
          "others idle: {}",
          rank, at.online, at.host, local, local == 1 ? "" : "s", local == 1 ? "s" : "", way_out);
    }
  }
  return {};
}

int set_threads(int wanted, Communicator& world) {
  std::vector<std::string> lines = world.gather(to_line(own_placement()), 0);
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  world.broadcast(all, 0);
  std::vector<Placement> ranks;
  std::istringstream text(all);
  for (std::string line; std::getline(text, line);) ranks.push_back(from_line(line));

  const char* variable = std::getenv("OMP_NUM_THREADS");
  const int asked = variable == nullptr ? 0 : std::atoi(variable);  // "4,2": the outer level
  const auto rank = static_cast<std::size_t>(world.rank());
  const int threads = wanted > 0 ? wanted : asked > 0 ? asked : fair_threads(ranks, rank);
  omp_set_num_threads(threads);

  const std::string problem = binding_problem(ranks);
  if (rank == 0 && !problem.empty()) spdlog::warn("{}", problem);
  return threads;
}

}  // namespace bdlm
