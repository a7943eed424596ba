// SPDX-License-Identifier: Apache-2.0
#include "trainer/train.h"

#include <spdlog/spdlog.h>

#include <memory>
#include <optional>
#include <sstream>

#include "data/loader.h"
#include "parallel/watchdog.h"
#include "trainer/agree.h"
#include "trainer/evaluate.h"
#include "trainer/memory_plan.h"
#include "trainer/model_placement.h"
#include "trainer/run_device.h"
#include "trainer/run_log.h"
#include "trainer/run_placement.h"
#include "trainer/schedule.h"
#include "trainer/signals.h"
#include "trainer/sources.h"
#include "trainer/step.h"
#include "trainer/threads.h"
#include "trainer/traffic.h"

namespace bdlm {
namespace {

class TrainingRun {
 public:
  explicit TrainingRun(const RunConfig& config)
      : config_(config),
        traffic_(watched_traffic()),
        mesh_(config.parallel.mesh, traffic_, key_copies(config)),
        watchdog_(traffic_->activity, config.fault.timeout, mesh_.rank()),
        source_(training_source(config)),
        evaluation_(config.data.eval.empty() ? nullptr : new DataSource(evaluation_source(config))),
        device_(make_device(config, mesh_, traffic_)),
        engine_(config, *device_, mesh_, Mode::train),
        log_(config, mesh_, *device_, traffic_) {
    device_->waiting = [this](bool begins) {
      if (begins)
        traffic_->activity->begin("work", Purpose::control, device_->name(), 0, 0, {});
      else
        traffic_->activity->end();
    };
  }

  int run();

 private:
  std::vector<std::string> candidates();
  void resume_or_start();
  void step(StepBatch batch);
  void skip(const StepResult& result);
  void evaluate_now();
  void save();
  void save_or_go_on();
  bool due(std::int64_t every) const { return every > 0 && progress_.step % every == 0; }

  const RunConfig& config_;
  std::shared_ptr<Traffic> traffic_;
  Mesh mesh_;
  Watchdog watchdog_;
  DataSource source_;
  std::unique_ptr<DataSource> evaluation_;  // null: no data.eval
  std::shared_ptr<Device> device_;
  Engine engine_;
  RunLog log_;
  Progress progress_;
  std::int64_t skips_in_a_row_ = 0, saved_step_ = -1, evaluated_step_ = -1;
};

int TrainingRun::run() {
  const SignalHandlers signals;
  tell_placement(mesh_, *device_);
  resume_or_start();
  if (progress_.step >= config_.run.steps)
    spdlog::info("all {} steps of the run are done", config_.run.steps);

  // Batches are made ahead, in order, by another thread.
  Loader<StepBatch> loader(
      [this, step = progress_.step, row = progress_.rows]() mutable -> std::optional<StepBatch> {
        if (step == config_.run.steps) return std::nullopt;
        StepBatch batch =
            batch_of_step(source_, config_, ++step, row, mesh_.position().data, engine_.seat());
        row += config_.batch.rows;
        return batch;
      },
      static_cast<std::size_t>(config_.data.prefetch));

  while (progress_.step < config_.run.steps) {
    step(*loader.next());
    if (due(config_.eval.every)) evaluate_now();
    if (const StopRequest stop = signals.agreed(mesh_.world())) {
      save();
      spdlog::info("{}: stopped and saved after step {} of {}; the same command goes on from there",
                   stop.name(), progress_.step, config_.run.steps);
      return 0;
    }
    if (due(config_.checkpoint.every)) save_or_go_on();
  }
  save();
  evaluate_now();
  return 0;
}

void TrainingRun::step(StepBatch batch) {
  ++progress_.step;
  const double lr =
      learning_rate(config_.schedule, config_.optimizer.lr, progress_.step, config_.run.steps);
  log_.begin_step(engine_.model().work());
  const StepResult result = with_memory_plan(
      config_, batch, mesh_.rank(),
      [&] { return train_step(engine_, batch, config_, lr, progress_.updates + 1); });
  const std::int64_t first_row = progress_.rows;
  progress_.rows += config_.batch.rows;
  if (result.updated) {
    ++progress_.updates;
    skips_in_a_row_ = 0;
  } else {
    skip(result);
  }
  progress_.tokens +=
      log_.end_step(progress_, first_row, batch, result, lr, engine_.model().work());
}

void TrainingRun::skip(const StepResult& result) {
  ++progress_.skips;
  const std::string rows =
      fmt::format("packed rows {} to {}", progress_.rows - config_.batch.rows, progress_.rows - 1);
  if (result.finite) {
    if (mesh_.speaks())
      spdlog::warn("step {} skipped: nothing in {} is scored", progress_.step, rows);
    return;
  }
  if (mesh_.speaks())
    spdlog::warn("step {} skipped: loss {}, gradient norm {}, {}", progress_.step, result.loss,
                 result.gradient_norm, rows);
  ++skips_in_a_row_;
  require(
      skips_in_a_row_ <= config_.fault.max_skips,
      "{} steps in a row were not finite, the last on {}: lower optimizer.lr, look at the data, "
      "or raise fault.max_skips; the last checkpoint is as it was",
      skips_in_a_row_, rows);
}

/// Checkpoints to go on from, the best first. Rank 0 looks: what ranks see of a shared folder may
/// differ for a while.
std::vector<std::string> TrainingRun::candidates() {
  const CheckpointSection& c = config_.checkpoint;
  std::string found;
  agree(mesh_.world(), [&] {
    if (!mesh_.speaks()) return;
    if (c.resume == Resume::path) found = open_checkpoint(c.resume_path).folder + '\n';
    if (c.resume != Resume::automatic) return;
    for (const CheckpointInfo& info : list_checkpoints(config_.run.folder))
      found += info.folder + '\n';
  });
  mesh_.world().broadcast(found, 0);
  std::vector<std::string> folders;
  std::istringstream lines(found);
  for (std::string line; std::getline(lines, line);) folders.push_back(line);
  return folders;
}

void TrainingRun::resume_or_start() {
  const std::vector<std::string> folders = candidates();
  for (const std::string& folder : folders) {
    CheckpointInfo checkpoint;
    try {
      agree(mesh_.world(), [&] { checkpoint = open_checkpoint(folder); });
      engine_.load(checkpoint);
    } catch (const Error& error) {
      if (config_.checkpoint.resume == Resume::path) throw;
      if (mesh_.speaks()) spdlog::warn("cannot be resumed: {}", error.what());
      continue;
    }
    progress_ = checkpoint.progress;
    saved_step_ = progress_.step;
    if (mesh_.speaks()) spdlog::info("resumed {} at step {}", folder, progress_.step);
    return;
  }
  require(folders.empty(),
          "no checkpoint of {} can be resumed; --resume never starts anew beside them",
          config_.run.folder);
  engine_.initialize();
}

void TrainingRun::evaluate_now() {
  if (!evaluation_ || evaluated_step_ == progress_.step) return;
  evaluated_step_ = progress_.step;
  log_.begin_evaluation();
  log_.end_evaluation(progress_.step,
                      evaluate(engine_, config_, *evaluation_,
                               evaluation_rows(config_, *evaluation_), config_.eval.draws));
}

void TrainingRun::save() {
  if (saved_step_ == progress_.step) return;
  HostState state = engine_.optimizer().save();
  save_checkpoint(mesh_, config_.run.folder, progress_, print_run_file(config_),
                  config_.model.config, engine_.parameters().layout(), state.share(),
                  config_.checkpoint.keep);
  saved_step_ = progress_.step;
}

/// In the middle of a run a checkpoint that cannot be written costs nothing but itself: the next
/// may find room. Failing is collective, so that all ranks go on or none.
void TrainingRun::save_or_go_on() {
  if (progress_.step == config_.run.steps) return;  // run() writes the last, or fails
  try {
    save();
  } catch (const Error& error) {
    if (mesh_.speaks())
      spdlog::warn("no checkpoint of step {}: {}; training goes on and tries again at the next one",
                   progress_.step, error.what());
  }
}

}  // namespace

int train(const RunConfig& config) { return TrainingRun(config).run(); }

}  // namespace bdlm
