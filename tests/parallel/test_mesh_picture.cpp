// SPDX-License-Identifier: Apache-2.0
#include "parallel/mesh_picture.h"

#include <catch2/catch.hpp>
#include <sstream>
#include <vector>

using namespace bdlm;
using Catch::Contains;

namespace {

std::string picture(const MeshSizes& sizes, MeshContents contents = {}) {
  const int stages = sizes.pipeline * contents.virtual_stages;
  const auto layers = cut_layers(std::vector<double>(static_cast<std::size_t>(2 * stages), 1.0), 0,
                                 0, stages);
  contents.layers = layers;
  return mesh_picture(sizes, contents);
}

}  // namespace

TEST_CASE("the picture of a mesh with every axis") {
  const MeshContents contents{.virtual_stages = 2, .experts = 8, .zero = 2};
  CHECK(picture({.tensor = 2, .csbp = 2, .data = 2, .pipeline = 2, .expert = 4}, contents) ==
        R"(mesh of 16 ranks = tensor 2 x csbp 2 x data 2 x pipeline 2 of 2 virtual stages each
expert 4: folded over the 8 ranks of a stage, 2 of 8 experts a rank
[a replica: its packed rows], | between its csbp ranks, in them the tensor ranks

  stage 0: embedding, layers 0-1; layers 4-5
    data 0 [ 0  1 |  2  3]  data 1 [ 4  5 |  6  7]
  stage 1: layers 2-3; layers 6-7, head
    data 0 [ 8  9 | 10 11]  data 1 [12 13 | 14 15]

who talks to whom {a group}, about what
  tensor 2     rows: gathered before a projection, summed and scattered after it
    {0 1}  {2 3}  {4 5}  {6 7}  {8 9}  {10 11}  {12 13}  {14 15}
  csbp 2       keys and values of clean rows, and back their gradients
    {0 2}  {1 3}  {4 6}  {5 7}  {8 10}  {9 11}  {12 14}  {13 15}
  pipeline 2   activations of both streams to the next stage, and back their gradients
    {0>8>0}  {1>9>1}  {2>10>2}  {3>11>3}  {4>12>4}  {5>13>5}  {6>14>6}  {7>15>7}
  expert 4     token rows to the experts' ranks, and back
    {0 1 2 3}  {4 5 6 7}  {8 9 10 11}  {12 13 14 15}
  ZeRO 2       gradients summed at owners, parameters gathered back: what tensor splits
    {0 2 4 6}  {1 3 5 7}  {8 10 12 14}  {9 11 13 15}
  ZeRO 2       gradients summed at owners, parameters gathered back: norms and what else is whole
    {0 1 2 3 4 5 6 7}  {8 9 10 11 12 13 14 15}
  ZeRO 2       gradients summed at owners, parameters gathered back: experts
    {0 4}  {1 5}  {2 6}  {3 7}  {8 12}  {9 13}  {10 14}  {11 15}
)");
}

TEST_CASE("pictures of small meshes") {
  CHECK_THAT(picture({}), Contains("stage 0: embedding, layers 0-1, head") &&
                              Contains("data 0 [0]") && Contains("nobody to talk to"));
  const std::string pipeline = picture({.pipeline = 3}, {.tied_embeddings = true});
  CHECK_THAT(pipeline, Contains("{0>1>2}") && Contains("layers 4-5, head (the embedding)") &&
                           Contains("the embedding, on the first and the last stage\n    {0 2}\n"));
  CHECK_THAT(picture({.csbp = 2}, {.zero = 3}),
             Contains("parameters gathered for use: all\n    {0 1}"));
  CHECK_THAT(picture({.tensor = 2}), !Contains("what tensor splits") && Contains("norms"));
  CHECK_THROWS_WITH(mesh_picture({.pipeline = 2}, {}), Contains("layers of 0 stages"));
}

TEST_CASE("pictures stay readable up to 64 ranks") {
  for (int tensor = 1; tensor <= 64; tensor *= 2)
    for (int csbp = 1; tensor * csbp <= 64; csbp *= 4)
      for (int pipeline = 1; tensor * csbp * pipeline <= 64; pipeline *= 2) {
        const MeshSizes sizes{.tensor = tensor,
                              .csbp = csbp,
                              .data = 64 / (tensor * csbp * pipeline),
                              .pipeline = pipeline,
                              .expert = 64 / pipeline};
        std::istringstream lines(picture(sizes, {.experts = 64}));
        int count = 0;
        for (std::string line; std::getline(lines, line); ++count) {
          CAPTURE(line);
          const bool one_replica = line.find("data ") != std::string::npos;  // not broken up
          CHECK((one_replica || line.size() <= 100));
          CHECK((line.empty() || line.back() != ' '));
        }
        CHECK(count < 170);
      }
  CHECK_THAT(picture({.csbp = 2, .data = 32}), Contains("more\n"));
  CHECK_THAT(picture({.data = 64}), Contains("{0 1 2 .. 63}"));
}
