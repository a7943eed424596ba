// SPDX-License-Identifier: Apache-2.0
#include "trainer/run_placement.h"

#include <spdlog/spdlog.h>

#include <sstream>
#include <string>
#include <vector>

#include "parallel/placement.h"

namespace bdlm {

void tell_placement(Mesh& mesh, const Device& device) {
  if (mesh.sizes().ranks() == 1) return;
  const Locality here = mpi_locality();
  const std::string own = fmt::format("{}\n{}\n{}", here.node, here.host, device.name());
  std::vector<RankPlace> places;
  for (const std::string& told : mesh.world().gather(own, 0)) {
    std::istringstream lines(told);
    RankPlace place;
    lines >> place.node >> std::ws;
    std::getline(lines, place.host);
    std::getline(lines, place.device);
    places.push_back(std::move(place));
  }
  if (!mesh.speaks()) return;
  std::istringstream lines(describe_placement(places, mesh.sizes()));
  for (std::string line; std::getline(lines, line);) spdlog::info("{}", line);
  if (const std::string warning = placement_warning(places, mesh.sizes()); !warning.empty())
    spdlog::warn("{}", warning);
}

}  // namespace bdlm
