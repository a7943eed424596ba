// SPDX-License-Identifier: Apache-2.0
#include "trainer/run_log.h"

#include <array>
#include <filesystem>
#include <fstream>

#include "trainer/agree.h"

namespace bdlm {
namespace {

double waited(const Traffic& traffic) {
  double seconds = 0;
  for (const Traffic::Count& count : traffic.by_purpose) seconds += count.wait_seconds;
  return seconds;
}

void write_run_file(const RunConfig& config) {
  std::error_code error;
  std::filesystem::create_directories(config.run.folder, error);
  require(!error, "run.folder {}: cannot be made: {}", config.run.folder, error.message());
  const std::string path = config.run.folder + "/run.yaml";
  std::ofstream file(path);
  file << print_run_file(config);
  file.close();
  require(file.good(), "{}: cannot be written: is the disk full or the folder read-only?", path);
}

}  // namespace

RunLog::RunLog(const RunConfig& config, Mesh& mesh, Device& device,
               std::shared_ptr<Traffic> traffic)
    : config_(config), mesh_(mesh), device_(device), traffic_(std::move(traffic)) {
  agree(mesh.world(), [&] {
    if (!mesh_.speaks()) return;
    write_run_file(config);
    metrics_.emplace(config.run.folder + "/metrics.jsonl");
    if (config.log.tensorboard) events_.emplace(config.run.folder + "/tensorboard");
    console_.emplace(stderr, config.log.progress);
  });
}

void RunLog::begin_step(const AttentionWork& work) {
  before_ = *traffic_;
  work_before_ = work;
  started_ = Clock::now();
}

void RunLog::measure(StepMetrics& m, const StepBatch& batch, const AttentionWork& work) {
  m.step_seconds = std::chrono::duration<double>(Clock::now() - started_).count();
  std::array<double, 3> most{waited(*traffic_) - waited(before_),
                             static_cast<double>(device_.memory().peak), m.step_seconds};
  std::array<double, 1> flops{batch.flops};
  // Replicas hold different rows; all other ranks share theirs.
  std::array<std::int64_t, 2> data{batch.tokens, static_cast<std::int64_t>(batch.fingerprint)};
  // The ranks of a tensor group see the same pairs, each for its heads.
  const bool tells = mesh_.position().tensor == 0;
  std::array<std::int64_t, 2> pairs{
      tells ? work.forward_pairs - work_before_.forward_pairs : 0,
      tells ? work.backward_pairs - work_before_.backward_pairs : 0};
  mesh_.world().all_reduce(most, Reduce::max);
  mesh_.world().all_reduce(flops, Reduce::sum);
  mesh_.data().all_reduce(data, Reduce::sum);
  mesh_.world().all_reduce(pairs, Reduce::sum);

  m.exposed_communication = most[0];
  m.memory_peak = most[1];
  m.step_seconds = most[2];
  m.tokens = data[0];
  m.fingerprint = fmt::format("{:016x}", static_cast<std::uint64_t>(data[1]));
  m.useful_flops_per_second = flops[0] / m.step_seconds;
  m.tokens_per_second = static_cast<double>(data[0]) / m.step_seconds;
  m.tokens_per_second_per_device = m.tokens_per_second / mesh_.world().size();
  m.attention_forward_pairs = pairs[0];
  m.attention_backward_pairs = pairs[1];
  for (std::size_t p = 0; p < purposes; ++p)
    m.received.emplace_back(name_of(static_cast<Purpose>(p)),
                            traffic_->by_purpose[p].received - before_.by_purpose[p].received);
  const MemoryUse memory = device_.memory();
  for (std::size_t k = 0; k < memory_kinds; ++k)
    m.memory.emplace_back(name_of(static_cast<Memory>(k)), memory.peak_by_kind[k]);
}

std::int64_t RunLog::end_step(const Progress& progress, std::int64_t first_row,
                              const StepBatch& batch, const StepResult& result, double lr,
                              const AttentionWork& work) {
  StepMetrics m;
  measure(m, batch, work);
  const std::int64_t tokens = m.tokens;
  const Objective& o = config_.objective;
  m.step = progress.step;
  m.steps = config_.run.steps;
  m.loss = result.loss;
  m.diffusion_loss = result.diffusion_loss;
  if (o.autoregressive()) m.ar_loss = result.ar_loss;
  if (o.router_aux_loss_coef > 0) m.aux_loss = result.aux_loss;
  const bool bound = o.weight == LossWeight::nelbo && o.corruption == Corruption::mask &&
                     o.normalize == Normalize::eligible && o.views == Views::one;
  if (bound) m.nelbo = result.diffusion_loss;
  m.grad_norm = result.gradient_norm;
  m.lr = lr;
  m.tokens = progress.tokens + tokens;
  m.skipped = progress.skips;
  m.first_row = first_row;
  m.rows = config_.batch.rows;
  m.eligible = result.counts.eligible;
  m.masked = result.counts.masked;
  m.documents = result.counts.documents;
  m.ar_pairs = result.counts.ar_pairs;
  seconds_a_step_ = seconds_a_step_ == 0 ? m.step_seconds
                                         : 0.9 * seconds_a_step_ + 0.1 * m.step_seconds;
  m.eta = seconds_a_step_ * static_cast<double>(m.steps - m.step);

  if (mesh_.speaks()) {
    metrics_->write(m);
    if (events_) events_->write(m.step, curves(m));
    const bool last = m.step == m.steps;
    console_->show(m, m.step == 1 || last || m.step % config_.log.every == 0);
  }
  return tokens;
}

void RunLog::end_evaluation(std::int64_t step, const Evaluation& evaluation) {
  if (!mesh_.speaks()) return;
  EvalMetrics m;
  m.step = step;
  m.nelbo = evaluation.nelbo;
  m.perplexity = evaluation.perplexity();
  m.tokens = evaluation.tokens;
  m.seconds = std::chrono::duration<double>(Clock::now() - started_).count();
  metrics_->write(m);
  if (events_) events_->write(m.step, curves(m));
  console_->show(m);
}

}  // namespace bdlm
