// SPDX-License-Identifier: Apache-2.0
// A small state whose every element is known, in any partition; shared with tests/mpi.
#pragma once

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "trainer/checkpoint.h"

namespace bdlm::test {

/// Odd sizes, vectors, one element, and gaps for alignment.
inline ParameterLayout odd_layout() {
  ParameterLayout layout;
  const auto add = [&](const char* name, std::int64_t rows, std::int64_t cols, bool vector) {
    layout.tensors.push_back({name, rows, cols, vector, layout.size, rows, cols});
    layout.size += (rows * cols + 7) / 8 * 8;
  };
  add("model.embed_tokens.weight", 13, 6, false);
  add("model.layers.0.input_layernorm.weight", 1, 6, true);
  add("model.layers.0.mlp.down_proj.weight", 6, 11, false);
  add("model.scale", 1, 1, true);
  add("model.norm.weight", 1, 6, true);
  return layout;
}

/// Exact in float32, another value for every element and kind; gaps are zero.
inline double truth(const ParameterLayout& layout, int kind, std::int64_t element) {
  for (const Parameter& tensor : layout.tensors) {
    if (element >= tensor.offset && element < tensor.offset + tensor.size()) {
      return static_cast<double>(1 + kind + 3 * element) / 64;
    }
  }
  return 0;
}

/// Owns the memory of a share of f32 or f64.
class State {
 public:
  State(std::vector<FlatRange> parts, DType type) {
    share.parts = std::move(parts);
    for (const FlatRange& part : share.parts) count_ += part.count;
    memory_.resize(3 * static_cast<std::size_t>(count_) * size_of(type));
    Tensor* tensors[] = {&share.master, &share.first, &share.second};
    for (int kind = 0; kind < 3; ++kind) {
      std::byte* at = memory_.data() + static_cast<std::size_t>(kind * count_) * size_of(type);
      *tensors[kind] = {at, 1, count_, count_, type};
    }
  }
  State(const State&) = delete;

  template <class F>  // f(kind, flat element, tensor, index)
  void each(F&& f) {
    const Tensor tensors[] = {share.master, share.first, share.second};
    for (int kind = 0; kind < 3; ++kind) {
      std::int64_t i = 0;
      for (const FlatRange& part : share.parts) {
        for (std::int64_t k = 0; k < part.count; ++k) f(kind, part.begin + k, tensors[kind], i++);
      }
    }
  }

  void fill(const ParameterLayout& layout, double factor = 1) {
    each([&](int kind, std::int64_t element, const Tensor& tensor, std::int64_t i) {
      const double value = factor * truth(layout, kind, element);
      if (tensor.dtype == DType::f64) {
        tensor.as<double>()[i] = value;
      } else {
        tensor.as<float>()[i] = static_cast<float>(value);
      }
    });
  }

  /// Elements that are not what fill() writes, of the first `kinds` kinds.
  std::int64_t wrong(const ParameterLayout& layout, double factor = 1, int kinds = 3) {
    std::int64_t count = 0;
    each([&](int kind, std::int64_t element, const Tensor& tensor, std::int64_t i) {
      const double value = tensor.dtype == DType::f64 ? tensor.as<double>()[i]
                                                      : static_cast<double>(tensor.as<float>()[i]);
      count += kind < kinds && value != factor * truth(layout, kind, element);
    });
    return count;
  }

  StateShare share;

 private:
  std::int64_t count_ = 0;
  std::vector<std::byte> memory_;
};

/// A fresh folder that goes with the object.
class Folder {
 public:
  explicit Folder(const std::filesystem::path& parent = std::filesystem::temp_directory_path()) {
    std::string name = (parent / "bdlm-test-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  Folder(const Folder&) = delete;

  std::filesystem::path step(std::int64_t step) const {
    return path / "checkpoints" / fmt::format("step_{:08}", step);
  }

  std::filesystem::path path;
};

/// What the call's Error says; empty when there is none.
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace bdlm::test
