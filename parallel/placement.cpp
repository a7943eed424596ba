// SPDX-License-Identifier: Apache-2.0
#include "parallel/placement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "kernels/error.h"
#include "parallel/mesh_groups.h"

namespace bdlm {
namespace {

struct Node {
  std::string host;
  std::vector<int> ranks;
};

std::vector<Node> nodes_of(std::span<const RankPlace> places) {
  std::map<int, Node> nodes;  // by their lowest rank
  for (std::size_t r = 0; r < places.size(); ++r) {
    Node& node = nodes[places[r].node];
    node.host = places[r].host;
    node.ranks.push_back(static_cast<int>(r));
  }
  std::vector<Node> out;
  for (auto& [first, node] : nodes) out.push_back(std::move(node));
  return out;
}

bool crosses(std::span<const RankPlace> places, const std::vector<int>& group) {
  return std::ranges::any_of(group, [&](int rank) {
    return places[static_cast<std::size_t>(rank)].node !=
           places[static_cast<std::size_t>(group.front())].node;
  });
}

RankGroups crossing(std::span<const RankPlace> places, RankGroups groups) {
  std::erase_if(groups, [&](const auto& group) { return !crosses(places, group); });
  return groups;
}

/// Lines of (ranks, device): ranks of a node with the same device stand together.
std::vector<std::pair<std::string, std::string>> devices_of(std::span<const RankPlace> places,
                                                            const std::vector<int>& ranks) {
  std::vector<std::pair<std::string, std::string>> lines;
  for (std::size_t i = 0; i < ranks.size();) {
    const std::string& device = places[static_cast<std::size_t>(ranks[i])].device;
    std::vector<int> alike;
    for (; i < ranks.size() && places[static_cast<std::size_t>(ranks[i])].device == device; ++i)
      alike.push_back(ranks[i]);
    lines.emplace_back(rank_ranges(alike), device);
  }
  return lines;
}

void check(std::span<const RankPlace> places, const MeshSizes& sizes) {
  require(places.size() == static_cast<std::size_t>(sizes.ranks()),
          "places of {} ranks for a mesh of {}", places.size(), sizes.ranks());
}

}  // namespace

std::string rank_ranges(std::span<const int> ranks) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    parts.push_back(last == i ? fmt::format("{}", ranks[i])
                              : fmt::format("{}-{}", ranks[i], ranks[last]));
    i = last + 1;
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string describe_placement(std::span<const RankPlace> places, const MeshSizes& sizes) {
  check(places, sizes);
  const std::vector<Node> nodes = nodes_of(places);
  std::string text =
      fmt::format("placement of {} rank{} on {} node{}\n", places.size(),
                  places.size() == 1 ? "" : "s", nodes.size(), nodes.size() == 1 ? "" : "s");
  text += fmt::format("  {:<5} {:<20} {:<16} {}\n", "node", "host", "ranks", "device");
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    std::string name = fmt::format("{}", n), host = nodes[n].host;
    for (const auto& [ranks, device] : devices_of(places, nodes[n].ranks)) {
      text += fmt::format("  {:<5} {:<20} {:<16} {}\n", name, host, ranks, device);
      name = host = "";
    }
  }
  const std::tuple<const char*, int, RankGroups> axes[] = {
      {"tensor", sizes.tensor, groups_along(Axis::tensor, sizes)},
      {"csbp", sizes.csbp, groups_along(Axis::csbp, sizes)},
      {"data", sizes.data, groups_along(Axis::data, sizes)},
      {"pipeline", sizes.pipeline, pipeline_columns(sizes)},
      {"expert", sizes.expert, groups_along(Axis::expert, sizes)}};
  for (const auto& [name, size, all] : axes) {
    if (size == 1) continue;
    const std::size_t groups = all.size(), across = crossing(places, all).size();
    text += fmt::format("  {} {}: {} group{}, {}\n", name, size, groups, groups == 1 ? "" : "s",
                        across == 0        ? std::string("inside nodes")
                        : across == groups ? std::string("across nodes")
                                           : fmt::format("{} of them across nodes", across));
  }
  return text;
}

std::string placement_warning(std::span<const RankPlace> places, const MeshSizes& sizes) {
  check(places, sizes);
  const std::tuple<const char*, Axis, int MeshSizes::*, const char*> axes[] = {
      {"tensor", Axis::tensor, &MeshSizes::tensor, "rows"},
      {"csbp", Axis::csbp, &MeshSizes::csbp, "keys and values"}};
  for (const auto& [name, axis, size, what] : axes) {
    const RankGroups across = crossing(places, groups_along(axis, sizes));
    if (across.empty()) continue;
    int inside = sizes.*size;
    for (bool found = false; !found;) {
      MeshSizes smaller = sizes;
      smaller.*size = --inside;
      const int stage = sizes.tensor * sizes.csbp * sizes.data,
                split = smaller.tensor * smaller.csbp;
      smaller.data = stage / split;
      found = stage % split == 0 && crossing(places, groups_along(axis, smaller)).empty();
    }
    return fmt::format(
        "{} of {} {} groups, as ranks {}, cross nodes: every layer's {} go over the network; "
        "parallel.{}: {} stays inside a node",
        across.size(), groups_along(axis, sizes).size(), name, rank_ranges(across.front()), what, name,
        inside);
  }
  return {};
}

}  // namespace bdlm
