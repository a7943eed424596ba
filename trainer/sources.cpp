// SPDX-License-Identifier: Apache-2.0
#include "trainer/sources.h"

#include <algorithm>
#include <numeric>

namespace bdlm {
namespace {

DataSource open(const RunConfig& config, const std::vector<WeightedFile>& files) {
  PackingOptions options;
  options.row_tokens = config.data.row_tokens;
  options.block_size = config.objective.block_size;
  options.window = config.data.window;
  options.seed = static_cast<std::uint64_t>(config.run.seed);
  return {files, options, config.model.config.vocab_size, config.objective.mask_token_id};
}

}  // namespace

DataSource training_source(const RunConfig& config) {
  require(!config.data.train.empty(),
          "data.train names no token file: make one with 'bdlm data prepare'");
  std::vector<WeightedFile> files;
  for (const DataFile& file : config.data.train) files.push_back({file.path, file.weight});
  return open(config, files);
}

DataSource evaluation_source(const RunConfig& config) {
  require(!config.data.eval.empty(),
          "data.eval names no token file: 'bdlm data prepare --holdout' makes one");
  return open(config, {{config.data.eval, 1}});
}

std::int64_t evaluation_rows(const RunConfig& config, const DataSource& source) {
  const std::int64_t all = source.rows_per_epoch();
  return config.eval.rows > 0 ? std::min(config.eval.rows, all) : all;
}

StepBatch batch_of_step(const DataSource& source, const RunConfig& config, std::int64_t step,
                        std::int64_t first_row, int replica, Seat seat) {
  const RowRange range =
      rows_of_replica(config.batch.rows, config.parallel.mesh.data, replica);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(range.last - range.first));
  std::iota(rows.begin(), rows.end(), first_row + range.first);
  return make_step_batch(
      corrupted_rows(source, rows, config.objective, config.model.config.vocab_size,
                     static_cast<std::uint64_t>(config.run.seed), step),
      config, seat, most_rows_of(config.batch.rows, config.parallel.mesh.data));
}

}  // namespace bdlm
