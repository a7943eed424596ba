// SPDX-License-Identifier: Apache-2.0
// What rank 0 shows of a run: a line every logging interval, and on a terminal a progress bar under
// it. In a batch log there are plain lines only.
#pragma once

#include <cstdio>
#include <string>

#include "trainer/metrics.h"

namespace bdlm {

/// "step 20/1000  loss 3.2104  nelbo ...": only what was measured.
std::string metrics_line(const StepMetrics& metrics);
std::string metrics_line(const EvalMetrics& metrics);

/// One line of at most `width` columns: "[#####     ] 500/1000  loss 3.21  12.3k tok/s  8m07s
/// left".
std::string progress_bar(const StepMetrics& metrics, int width);

std::string duration_text(double seconds);  // "42s", "8m07s", "3h05m", "2d04h"
std::string count_text(double count);       // "950", "12.3k", "4.56M"
std::string bytes_text(double bytes);       // "12.1 GiB"

class Console {
 public:
  /// `progress`: log.progress; there is a bar only if `out` is a terminal too. Call show on one
  /// rank.
  Console(std::FILE* out, bool progress);
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  /// After every step: `print` on the logging interval, else only the bar moves.
  void show(const StepMetrics& metrics, bool print);
  void show(const EvalMetrics& metrics);

 private:
  void print_line(const std::string& line);
  std::FILE* out_;
  bool bar_ = false;
  std::string shown_;  // the bar on the screen
};

}  // namespace bdlm
