// SPDX-License-Identifier: Apache-2.0
#include "trainer/parity.h"

#include <array>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>

#include "trainer/golden.h"
#include "trainer/model_placement.h"
#include "trainer/parity_tensors.h"
#include "trainer/run_device.h"
#include "trainer/step.h"
#include "trainer/traffic.h"

namespace bdlm {
namespace {

/// Sums of squares of a difference and of what it is measured against.
struct Difference {
  double error = 0, size = 0;
  void add(double got, double expected) {
    error += (got - expected) * (got - expected);
    size += expected * expected;
  }
  /// Norm of the difference over the norm of the expected, or over `floor` if that is larger.
  double relative(double floor = 0) const {
    const double scale = std::max(std::sqrt(size), floor);
    return scale > 0 ? std::sqrt(error) / scale : std::sqrt(error);
  }
};

double relative(double got, double expected) {
  Difference d;
  d.add(got, expected);
  return d.relative();
}

std::vector<double> host_copy(Device& device, Tensor flat) {
  std::vector<double> host(static_cast<std::size_t>(flat.size()));
  const Buffer wide = device.allocate(flat.rows, flat.cols, DType::f64, Memory::workspace);
  device.copy(flat, wide);
  device.copy_to_host(wide, host.data());
  return host;
}

/// Residual streams of this rank's rows against the golden ones, a layer at a time.
class TraceCheck {
 public:
  TraceCheck(const Golden& golden, const RunConfig& config)
      : golden_(golden), layers_(static_cast<std::size_t>(config.model.config.num_hidden_layers)) {}

  /// Which golden rows the next forward pass joins, and its first view of how many.
  void expect(std::span<const std::int64_t> rows, std::int64_t first_view, std::int64_t views) {
    places_.clear();
    std::int64_t tokens = 0;
    for (const std::int64_t row : rows) tokens += golden_.rows[at(row)].clean.size();
    for (std::int64_t copy = 0; copy <= views; ++copy)
      for (const std::int64_t row : rows) {
        const std::int64_t length = golden_.rows[at(row)].clean.size();
        const std::int64_t source = copy == 0 ? 0 : copy + first_view;
        for (std::int64_t i = 0; i < length; ++i) places_.push_back({row, source * length + i});
      }
  }

  /// x: the rows of plan.out from `first` on that are here.
  void operator()(Device& device, std::int64_t layer, const LayerPlan& plan, Tensor x,
                  std::int64_t first) {
    const std::vector<double> rows = host_copy(device, x);
    for (std::size_t i = 0; i < at(x.rows); ++i) {
      const auto id = at(plan.in[at(plan.out[at(first) + i])]);
      const Place place = places_[id];
      const std::vector<double>& golden = golden_.traces[at(place.row)][at(layer)];
      const auto width = static_cast<std::size_t>(x.cols);
      const double* expected = golden.data() + at(place.copy_row) * width;
      if (std::isnan(expected[0])) continue;  // no reader: computed only because elide is off
      for (std::size_t k = 0; k < width; ++k)
        layers_[at(layer)].add(rows[i * width + k], expected[k]);
    }
  }

  std::vector<Difference> layers_over(Communicator& world) const {
    std::vector<double> sums;
    for (const Difference& d : layers_) sums.insert(sums.end(), {d.error, d.size});
    world.all_reduce(sums, Reduce::sum);
    std::vector<Difference> all;
    for (std::size_t l = 0; l < layers_.size(); ++l) all.push_back({sums[2 * l], sums[2 * l + 1]});
    return all;
  }

 private:
  struct Place {
    std::int64_t row = 0, copy_row = 0;
  };
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

  const Golden& golden_;
  std::vector<Place> places_;  // by row id of the pass
  std::vector<Difference> layers_;
};

/// Bytes by purpose that differ from the plan, over all ranks; 0 is equality.
void compare_traffic(const Traffic& counted, const Traffic& planned, Communicator& world,
                     ParityReport& report) {
  for (std::size_t p = 0; p < purposes; ++p) {
    const auto purpose = static_cast<Purpose>(p);
    if (purpose == Purpose::control) continue;
    const auto &c = counted.by_purpose[p], &e = planned.by_purpose[p];
    std::array<std::int64_t, 2> sums{
        std::abs(c.sent - e.sent) + std::abs(c.received - e.received), c.received};
    world.all_reduce(sums, Reduce::sum);
    report.lines.push_back({fmt::format("bytes of {} ({} received) less the plan's",
                                        name_of(purpose), sums[1]),
                            static_cast<double>(sums[0]), 0});
  }
}

}  // namespace

ParityTolerance default_tolerance(DType dtype) {
  switch (dtype) {
    case DType::f64: return {1e-10, 1e-8};
    case DType::f32: return {1e-4, 1e-2};
    case DType::bf16: break;
  }
  return {5e-2, 5e-1};
}

bool ParityReport::passed() const {
  for (const ParityLine& line : lines)
    if (!line.passed()) return false;
  return !lines.empty();
}

RunConfig golden_config(const std::string& folder, const std::vector<std::string>& overrides,
                        int world) {
  const std::string path = folder + "/run.yaml";
  std::ifstream file(path);
  require(file.good(), "{}: cannot be opened; is {} a golden folder?", path, folder);
  std::stringstream text;
  text << file.rdbuf();
  std::vector<std::string> all{"model.from=" + folder, "model.weights=load", "run.dtype=float64",
                               "run.device=cpu"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return parse_run_file(text.str(), path, all, world);
}

namespace {

/// Tells the trace which golden rows the passes join: passes begin their first layer here in order.
void follow_passes(TraceCheck& traces, Engine& engine, const RunConfig& config, RowRange mine) {
  const std::int64_t splits = config.objective.view_count() / views_at_once(config);
  const std::int64_t at_once = views_at_once(config);
  const std::vector<LayerRange>& chunks = engine.model().shard().chunks;
  // With virtual stages passes of several micro-batches alternate, each chunk in order.
  auto passes = std::make_shared<std::vector<std::int64_t>>(chunks.size(), 0);
  engine.model().trace = [=, &traces, &engine, &config](std::int64_t layer, const LayerPlan& plan,
                                                        Tensor x, std::int64_t first_row) {
    const auto chunk = std::ranges::find_if(
        chunks, [&](const LayerRange& c) { return layer >= c.begin && layer < c.end; });
    std::int64_t& pass = (*passes)[static_cast<std::size_t>(chunk - chunks.begin())];
    std::vector<std::int64_t> joined;
    const std::int64_t first = mine.first + pass / splits * config.batch.micro_rows;
    for (std::int64_t r = first; r < std::min(first + config.batch.micro_rows, mine.last); ++r)
      joined.push_back(r);
    traces.expect(joined, pass % splits * at_once, at_once);
    traces(engine.device(), layer, plan, x, first_row);
    if (layer + 1 == chunk->end) ++pass;
  };
}

}  // namespace

ParityReport check_parity(const std::string& folder, const RunConfig& config,
                          const ParityTolerance& tolerance) {
  const Golden golden = read_golden(folder, config.objective);
  auto traffic = std::make_shared<Traffic>();
  Mesh mesh(config.parallel.mesh, traffic, key_copies(config));
  const auto device = make_device(config, mesh, traffic);
  Engine engine(config, *device, mesh, Mode::train);
  engine.initialize();

  const MeshPosition at = mesh.position();
  const auto all_rows = static_cast<std::int64_t>(golden.rows.size());
  const RowRange mine = rows_of_replica(all_rows, mesh.sizes().data, at.data);
  std::vector<CorruptedRow> rows(golden.rows.begin() + mine.first, golden.rows.begin() + mine.last);
  StepBatch batch = make_step_batch(std::move(rows), config, engine.seat(),
                                    most_rows_of(all_rows, mesh.sizes().data));
  // The case gives the normalizers; they are counted once, by the first replica.
  batch.counts = {};
  if (at.data == 0)
    batch.counts = {golden.normalizer, golden.normalizer, golden.normalizer, golden.ar_normalizer,
                    all_rows};

  TraceCheck traces(golden, config);
  follow_passes(traces, engine, config, mine);

  ParityReport report;
  const auto check = [&](const std::string& what, double error, double limit) {
    report.lines.push_back({what, error, limit});
  };
  traffic->by_purpose = {};
  const StepResult first = forward_backward(engine, batch, config.objective);
  engine.model().trace = nullptr;
  const AttentionWork& work = engine.model().work();
  compare_traffic(*traffic,
                  plan_traffic(batch, config, mesh.rank(),
                               {work.expert_rows, work.expert_rows_again}, false),
                  mesh.world(), report);
  check("loss", relative(first.loss, golden.loss), tolerance.values);
  check("diffusion_loss", relative(first.diffusion_loss, golden.diffusion_loss), tolerance.values);
  if (config.objective.autoregressive())
    check("ar_loss", relative(first.ar_loss, golden.ar_loss), tolerance.values);
  if (config.objective.router_aux_loss_coef > 0)
    check("aux_loss", relative(first.aux_loss, golden.aux_loss), tolerance.values);
  const auto layers = traces.layers_over(mesh.world());
  for (std::size_t l = 0; l < layers.size(); ++l)
    check(fmt::format("residual stream after layer {}", l), layers[l].relative(), tolerance.values);

  const auto compare = [&](const std::string& what, const std::vector<double>& values,
                           const std::map<std::string, std::vector<double>>& expected,
                           double limit) {
    const TensorsComparison compared =
        compare_owned(config.model.config, engine.parameters().layout(),
                      engine.parameters().owned_parts(), values, expected, mesh.world());
    for (const TensorComparison& tensor : compared.tensors)
      check(fmt::format("{} {}", what, tensor.name), tensor.error, limit);
    return compared.norm;
  };
  const double norm = engine.optimizer().gradient_norm();
  const double whole =
      compare("gradient", engine.optimizer().own_gradients(), golden.gradients, tolerance.values);
  check("gradient norm", relative(norm, whole), tolerance.values);

  for (std::size_t step = 0; step < golden.train_losses.size(); ++step) {
    const StepResult result = train_step(engine, batch, config, config.optimizer.lr,
                                         static_cast<std::int64_t>(step) + 1);
    check(fmt::format("loss of optimizer step {}", step + 1),
          relative(result.loss, golden.train_losses[step]), tolerance.trained);
  }
  compare("trained", engine.optimizer().own_masters(), golden.train_parameters, tolerance.trained);
  return report;
}

}  // namespace bdlm
