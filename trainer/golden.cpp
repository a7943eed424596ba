// SPDX-License-Identifier: Apache-2.0
// Reading golden.h5, which h5py wrote.
#include "trainer/golden.h"

#include <filesystem>
#include <numeric>

#include "data/hdf5.h"
#include "kernels/error.h"

namespace bdlm {
namespace {

using hdf5::Handle;

template <class T>
hid_t memory_type() {
  return std::is_same_v<T, double>         ? H5T_NATIVE_DOUBLE
         : std::is_same_v<T, std::int32_t> ? H5T_NATIVE_INT32
                                           : H5T_NATIVE_INT64;
}

class GoldenFile {
 public:
  explicit GoldenFile(const std::string& path)
      : path_(path), file_(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose) {
    require(file_.ok(), "{} cannot be opened as an HDF5 file: give a folder with a golden case",
            path);
  }

  /// The whole dataset, row-major.
  template <class T>
  std::vector<T> read(const std::string& name) const {
    const Handle dataset(H5Dopen2(file_.id(), name.c_str(), H5P_DEFAULT), H5Dclose);
    require(dataset.ok(), "{} has no dataset '{}'", path_, name);
    const Handle space(H5Dget_space(dataset.id()), H5Sclose);
    std::vector<T> out(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space.id())));
    require(H5Dread(dataset.id(), memory_type<T>(), H5S_ALL, H5S_ALL, H5P_DEFAULT, out.data()) >= 0,
            "dataset '{}' of {} cannot be read as numbers", name, path_);
    return out;
  }
  double number(const std::string& name) const {
    const auto values = read<double>(name);
    require(values.size() == 1, "dataset '{}' of {} has {} values instead of one", name, path_,
            values.size());
    return values.front();
  }
  std::int64_t attribute(const char* name) const {
    const auto value = hdf5::read_integer(file_.id(), name);
    require(value.has_value(), "{} has no whole number as attribute '{}'", path_, name);
    return *value;
  }
  /// Names inside a group, in alphabetical order.
  std::vector<std::string> list(const std::string& group) const {
    std::vector<std::string> names;
    const auto add = [](hid_t, const char* name, const H5L_info_t*, void* out) -> herr_t {
      static_cast<std::vector<std::string>*>(out)->emplace_back(name);
      return 0;
    };
    const Handle handle(H5Gopen2(file_.id(), group.c_str(), H5P_DEFAULT), H5Gclose);
    require(handle.ok() &&
                H5Literate(handle.id(), H5_INDEX_NAME, H5_ITER_INC, nullptr, add, &names) >= 0,
            "{} has no group '{}'", path_, group);
    return names;
  }
  std::map<std::string, std::vector<double>> tensors(const std::string& group) const {
    std::map<std::string, std::vector<double>> out;
    for (const std::string& name : list(group)) out[name] = read<double>(group + '/' + name);
    return out;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  Handle file_;
};

/// [views, T] as a vector a view.
template <class T>
std::vector<std::vector<T>> split(const std::vector<T>& values, std::size_t tokens) {
  std::vector<std::vector<T>> out;
  for (auto row = values.begin(); row != values.end(); row += static_cast<long>(tokens)) {
    out.emplace_back(row, row + static_cast<long>(tokens));
  }
  return out;
}

CorruptedRow read_row(const GoldenFile& file, std::int64_t index, const Objective& objective) {
  const std::string base = fmt::format("rows/{}/", index);
  CorruptedRow row;
  row.clean.index = index;
  row.clean.tokens = file.read<std::int32_t>(base + "tokens");
  row.clean.documents = file.read<std::int64_t>(base + "doc_lengths");
  const std::size_t tokens = row.clean.tokens.size();
  row.clean.eligible.assign(tokens, 1);
  const auto corrupted = file.read<std::int32_t>(base + "corrupted");
  const auto weights = file.read<double>(base + "weights");
  const auto views = static_cast<std::size_t>(objective.view_count());
  require(tokens > 0 && corrupted.size() == views * tokens && weights.size() == views * tokens,
          "row {} of {} has {} corrupted tokens and {} weights for {} tokens and {} views: does "
          "the run file fit it?",
          index, file.path(), corrupted.size(), weights.size(), tokens, views);
  require(std::accumulate(row.clean.documents.begin(), row.clean.documents.end(),
                          std::int64_t{0}) == row.clean.size(),
          "the documents of row {} of {} do not add up to its {} tokens", index, file.path(),
          tokens);
  row.views = split(corrupted, tokens);
  row.weights = split(weights, tokens);
  if (objective.autoregressive()) {
    row.ar_weights = file.read<double>(base + "ar_weights");
    require(row.ar_weights.size() == tokens, "row {} of {} has {} ar_weights for {} tokens", index,
            file.path(), row.ar_weights.size(), tokens);
  }
  return row;
}

}  // namespace

Golden read_golden(const std::string& folder, const Objective& objective) {
  const hdf5::Quiet quiet;
  const GoldenFile file((std::filesystem::path(folder) / "golden.h5").string());
  Golden out;
  out.normalizer = file.attribute("normalizer");
  out.ar_normalizer = file.attribute("ar_normalizer");
  // Counted, not listed: the names' alphabetical order is not that of their numbers.
  const auto rows = static_cast<std::int64_t>(file.list("rows").size());
  for (std::int64_t row = 0; row < rows; ++row) {
    out.rows.push_back(read_row(file, row, objective));
    const std::string group = fmt::format("expected/trace/{}", row);
    auto& layers = out.traces.emplace_back();
    for (std::size_t layer = 0; layer < file.list(group).size(); ++layer) {
      layers.push_back(file.read<double>(fmt::format("{}/layer_{}", group, layer)));
    }
  }
  out.loss = file.number("expected/loss");
  out.diffusion_loss = file.number("expected/diffusion_loss");
  out.ar_loss = file.number("expected/ar_loss");
  out.aux_loss = file.number("expected/aux_loss");
  out.gradients = file.tensors("expected/grad");
  out.train_losses = file.read<double>("expected/train/loss");
  out.train_parameters = file.tensors("expected/train/param");
  return out;
}

}  // namespace bdlm
