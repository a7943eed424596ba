// SPDX-License-Identifier: Apache-2.0
// What a step has measured, and metrics.jsonl: one JSON object a line, appended, so that a run that
// is resumed goes on in the same file. Of lines with the same step the last one counts.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace bdlm {

inline constexpr double not_measured = std::nan("");

/// Of the whole job where nothing else is said. not_measured is left out of lines and null in JSON.
struct StepMetrics {
  std::int64_t step = 0, steps = 0;      // counts from 1; of the run
  double loss = not_measured;            // what is trained
  double diffusion_loss = not_measured;  // its terms
  double ar_loss = not_measured;
  double aux_loss = not_measured;  // balance of a mixture's experts
  double nelbo = not_measured;  // nats a token
  double grad_norm = not_measured;
  double lr = not_measured;
  std::int64_t tokens = 0;  // clean tokens trained on since step 1
  double tokens_per_second = not_measured;
  double tokens_per_second_per_device = not_measured;
  double mfu = not_measured;                    // 0 to 1; needs the device's peak
  double memory_peak = not_measured;            // bytes, the fullest device
  double exposed_communication = not_measured;  // seconds of the step that only waited
  double step_seconds = not_measured;
  std::int64_t skipped = 0;   // steps skipped so far
  double eta = not_measured;  // seconds to the last step

  // What the step was made of: equal on every topology.
  std::int64_t first_row = 0, rows = 0;  // packed rows [first_row, first_row + rows)
  std::int64_t eligible = 0, masked = 0, documents = 0, ar_pairs = 0;
  std::string fingerprint;  // of its data and noise, hexadecimal (data/fingerprint.h)

  double useful_flops_per_second = not_measured;  // of all ranks, as MFU counts them
  std::int64_t attention_forward_pairs = 0, attention_backward_pairs = 0;  // done in the step
  /// Of rank 0: bytes received by purpose in the step, peak bytes by kind of memory.
  std::vector<std::pair<std::string, std::int64_t>> received, memory;
};

struct EvalMetrics {
  std::int64_t step = 0;
  double nelbo = not_measured;       // nats a token
  double perplexity = not_measured;  // exp of it, an upper bound
  std::int64_t tokens = 0;
  double seconds = not_measured;
};

std::string to_json(const StepMetrics& metrics);
std::string to_json(const EvalMetrics& metrics);

/// The scalars worth a curve, by TensorBoard tag; unmeasured ones are not among them.
std::vector<std::pair<std::string, double>> curves(const StepMetrics& metrics);
std::vector<std::pair<std::string, double>> curves(const EvalMetrics& metrics);

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

/// metrics.jsonl. A line is complete on disk before write() returns; what a crash has left of a
/// line is ended first. A write that fails throws Error with the file and the cause.
class MetricsFile {
 public:
  explicit MetricsFile(std::string path);
  void write(const StepMetrics& metrics) { append(to_json(metrics)); }
  void write(const EvalMetrics& metrics) { append(to_json(metrics)); }

 private:
  void append(const std::string& line);
  std::string path_;
  File file_;
};

}  // namespace bdlm
