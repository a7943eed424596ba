// SPDX-License-Identifier: Apache-2.0
#include "parallel/mesh_picture.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "kernels/error.h"
#include "parallel/mesh_groups.h"

namespace bdlm {
namespace {

using Words = std::vector<std::string>;
constexpr std::size_t columns = 100;

/// Words side by side, two blanks apart, on as many lines as they need.
std::string flow(const Words& words, std::size_t indent) {
  std::string text, line(indent, ' ');
  for (const std::string& word : words) {
    if (line.size() > indent && line.size() + word.size() > columns) {
      text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
      line.assign(indent, ' ');
    }
    line += word + "  ";
  }
  return text + line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
}

std::string layers_of(const LayerRange& range) {
  if (range.count() == 1) return fmt::format("layer {}", range.begin);
  return fmt::format("layers {}-{}", range.begin, range.end - 1);
}

/// What a stage holds: "embedding, layers 0-1; layers 4-5, head", chunks apart by semicolons.
std::string held(const MeshSizes& sizes, const MeshContents& contents, int stage) {
  const int last = sizes.pipeline * contents.virtual_stages - 1;
  Words chunks;
  for (int v = stage; v <= last; v += sizes.pipeline) {
    std::string chunk = layers_of(contents.layers[static_cast<std::size_t>(v)]);
    if (v == 0) chunk = "embedding, " + chunk;
    if (v == last) chunk += contents.tied_embeddings ? ", head (the embedding)" : ", head";
    chunks.push_back(chunk);
  }
  return fmt::format("{}", fmt::join(chunks, "; "));
}

/// A replica's ranks: csbp ranks apart by bars, in them the tensor ranks: "[ 0  1 |  2  3]".
std::string replica(const MeshSizes& sizes, int first, int width) {
  Words ranks;
  for (int c = 0; c < sizes.csbp; ++c) {
    Words row;
    for (int t = 0; t < sizes.tensor; ++t)
      row.push_back(fmt::format("{:>{}}", first + c * sizes.tensor + t, width));
    ranks.push_back(fmt::format("{}", fmt::join(row, " ")));
  }
  return fmt::format("[{}]", fmt::join(ranks, " | "));
}

/// A long group keeps its first three ranks and its last.
std::string group_text(const std::vector<int>& group, const char* separator, bool ring) {
  Words ranks;
  for (std::size_t i = 0; i < group.size(); ++i) {
    const bool dots = group.size() > 8 && i >= 3 && i + 1 < group.size();
    if (!dots) ranks.push_back(fmt::format("{}", group[i]));
    if (dots && i == 3) ranks.push_back("..");
  }
  if (ring) ranks.push_back(ranks.front());
  return fmt::format("{{{}}}", fmt::join(ranks, separator));
}

std::string groups_text(const std::vector<std::vector<int>>& groups, const char* separator = " ",
                        bool ring = false) {
  Words words;
  for (const auto& group : groups) words.push_back(group_text(group, separator, ring));
  constexpr std::size_t indent = 4;
  constexpr std::ptrdiff_t lines = 2;
  std::string text = flow(words, indent);
  for (std::size_t shown = words.size(); std::ranges::count(text, '\n') > lines && shown > 1;) {
    Words some(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(--shown));
    some.push_back(fmt::format("and {} more", words.size() - shown));
    text = flow(some, indent);
  }
  return text;
}

std::string axis(const std::string& name, const std::string& what,
                 const std::vector<std::vector<int>>& groups, const char* separator = " ",
                 bool ring = false) {
  return fmt::format("  {:<12} {}\n", name, what) + groups_text(groups, separator, ring);
}

std::string talk(const MeshSizes& s, const MeshContents& contents) {
  std::string text;
  if (s.tensor > 1)
    text += axis(fmt::format("tensor {}", s.tensor),
                 "rows: gathered before a projection, summed and scattered after it",
                 groups_along(Axis::tensor, s));
  if (s.csbp > 1)
    text += axis(fmt::format("csbp {}", s.csbp),
                 "keys and values of clean rows, and back their gradients",
                 groups_along(Axis::csbp, s));
  if (s.pipeline > 1)
    text += axis(fmt::format("pipeline {}", s.pipeline),
                 "activations of both streams to the next stage, and back their gradients",
                 pipeline_columns(s), ">", contents.virtual_stages > 1);
  if (s.expert > 1)
    text += axis(fmt::format("expert {}", s.expert), "token rows to the experts' ranks, and back",
                 groups_along(Axis::expert, s));

  const std::string name = fmt::format("ZeRO {}", contents.zero);
  const std::string sums = contents.zero < 3
                               ? "gradients summed at owners, parameters gathered back: "
                               : "gradients summed at owners, parameters gathered for use: ";
  const auto add = [&](Holders set, const char* what) {
    RankGroups groups = groups_among(set, s, contents.key_copies);
    std::erase_if(groups, [](const auto& group) { return group.size() == 1; });
    if (!groups.empty()) text += axis(name, sums + what, groups);
  };
  if (s.tensor > 1) add(Holders::sharded, "what tensor splits");
  if (contents.key_copies > 1) add(Holders::keys, "key and value projections");
  add(Holders::replicated, s.tensor > 1   ? "norms and what else is whole"
                           : s.expert > 1 ? "all but experts"
                                          : "all");
  if (s.expert > 1) add(Holders::experts, "experts");
  if (s.pipeline > 1 && contents.tied_embeddings)
    add(Holders::tied, "the embedding, on the first and the last stage");
  return text;
}

}  // namespace

std::string mesh_picture(const MeshSizes& sizes, const MeshContents& contents) {
  const auto stages = static_cast<std::size_t>(sizes.pipeline * contents.virtual_stages);
  require(contents.layers.size() == stages, "layers of {} stages for a mesh of {}",
          contents.layers.size(), stages);
  const int width = static_cast<int>(fmt::format("{}", sizes.ranks() - 1).size());
  std::string text = fmt::format("mesh of {} rank{} = tensor {} x csbp {} x data {} x pipeline {}",
                                 sizes.ranks(), sizes.ranks() == 1 ? "" : "s", sizes.tensor,
                                 sizes.csbp, sizes.data, sizes.pipeline);
  if (contents.virtual_stages > 1)
    text += fmt::format(" of {} virtual stages each", contents.virtual_stages);
  text += "\n";
  if (sizes.expert > 1)
    text += fmt::format("expert {}: folded over the {} ranks of a stage, {} of {} experts a rank\n",
                        sizes.expert, sizes.ranks() / sizes.pipeline,
                        contents.experts / sizes.expert, contents.experts);
  text += "[a replica: its packed rows], | between its csbp ranks, in them the tensor ranks\n\n";

  for (int p = 0; p < sizes.pipeline; ++p) {
    text += fmt::format("  stage {}: {}\n", p, held(sizes, contents, p));
    Words replicas;
    const int ranks = sizes.tensor * sizes.csbp;
    for (int d = 0; d < sizes.data; ++d)
      replicas.push_back(fmt::format("data {:<{}} {}", d, sizes.data > 10 ? 2 : 1,
                                     replica(sizes, (p * sizes.data + d) * ranks, width)));
    text += flow(replicas, 4);
  }
  const std::string talks = talk(sizes, contents);
  return text + (talks.empty() ? "\none rank: nobody to talk to\n"
                               : "\nwho talks to whom {a group}, about what\n" + talks);
}

}  // namespace bdlm
