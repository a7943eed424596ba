// SPDX-License-Identifier: Apache-2.0
// Lines and the bar.
#include "trainer/console.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

namespace bdlm {
namespace {

constexpr const char* erase_line = "\r\033[K";

template <class... Args>
void add(std::string& line, double value, fmt::format_string<Args...> text, Args&&... args) {
  if (!std::isnan(value)) line += "  " + fmt::format(text, std::forward<Args>(args)...);
}

int terminal_width(std::FILE* out) {
  winsize size{};
  const bool known = ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

}  // namespace

std::string duration_text(double seconds) {
  const auto s = static_cast<std::int64_t>(std::llround(std::clamp(seconds, 0.0, 1e12)));
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
  return fmt::format("{}d{:02}h", s / 86400, s / 3600 % 24);
}

std::string count_text(double count) {
  for (const auto& [unit, name] : {std::pair{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}}) {
    if (count >= unit) return fmt::format("{:.3g}{}", std::min(count / unit, 999.0), name);
  }
  return fmt::format("{:.3g}", count);
}

std::string bytes_text(double bytes) {
  const char* names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t power = 0;
  for (; bytes >= 1024 && power + 1 < std::size(names); ++power) bytes /= 1024;
  return fmt::format("{:.{}f} {}", bytes, power == 0 ? 0 : 1, names[power]);
}

std::string metrics_line(const StepMetrics& m) {
  std::string line = fmt::format("step {}/{}", m.step, m.steps);
  add(line, m.loss, "loss {:.4f}", m.loss);
  add(line, m.ar_loss, "diffusion {:.4f}  ar {:.4f}", m.diffusion_loss, m.ar_loss);
  add(line, m.aux_loss, "balance {:.4f}", m.aux_loss);
  add(line, m.nelbo, "nelbo {:.4f}", m.nelbo);
  add(line, m.grad_norm, "grad {:.3g}", m.grad_norm);
  add(line, m.lr, "lr {:.2e}", m.lr);
  add(line, m.tokens_per_second, "tok/s {}", count_text(m.tokens_per_second));
  add(line, m.tokens_per_second_per_device, "a device {}",
      count_text(m.tokens_per_second_per_device));
  add(line, m.mfu, "mfu {:.1f}%", 100 * m.mfu);
  add(line, m.memory_peak, "mem {}", bytes_text(m.memory_peak));
  add(line, m.exposed_communication / m.step_seconds, "comm {:.1f}%",
      100 * m.exposed_communication / m.step_seconds);
  if (m.skipped > 0) line += fmt::format("  skipped {}", m.skipped);
  add(line, m.eta, "left {}", duration_text(m.eta));
  return line;
}

std::string metrics_line(const EvalMetrics& m) {
  std::string line = fmt::format("eval at step {}", m.step);
  add(line, m.nelbo, "nelbo {:.4f}", m.nelbo);
  add(line, m.perplexity, "perplexity <= {:.4g}", m.perplexity);
  line += fmt::format("  tokens {}", count_text(static_cast<double>(m.tokens)));
  add(line, m.seconds, "{}", duration_text(m.seconds));
  return line;
}

std::string progress_bar(const StepMetrics& m, int width) {
  std::string text = fmt::format(" {}/{}", m.step, m.steps);
  add(text, m.loss, "loss {:.4f}", m.loss);
  add(text, m.tokens_per_second, "{} tok/s", count_text(m.tokens_per_second));
  add(text, m.eta, "{} left", duration_text(m.eta));
  const int cells = std::min(30, width - 2 - static_cast<int>(text.size()));
  if (cells < 5) return text.substr(1, static_cast<std::size_t>(std::max(width, 0)));
  const double part = m.steps > 0 ? static_cast<double>(m.step) / static_cast<double>(m.steps) : 0;
  const int full = static_cast<int>(std::clamp(part, 0.0, 1.0) * cells);
  return fmt::format("[{:<{}}]{}", std::string(static_cast<std::size_t>(full), '#'), cells, text);
}

Console::Console(std::FILE* out, bool progress)
    : out_(out), bar_(progress && isatty(fileno(out)) != 0) {}

Console::~Console() {
  if (bar_ && !shown_.empty()) print_line("");
}

void Console::print_line(const std::string& line) {
  if (bar_) std::fputs(erase_line, out_);
  if (!line.empty()) fmt::print(out_, "{}\n", line);
  if (bar_ && !line.empty()) std::fputs(shown_.c_str(), out_);
  std::fflush(out_);
}

void Console::show(const StepMetrics& metrics, bool print) {
  // One column stays free: some terminals break the line when the last one is written.
  if (bar_) shown_ = progress_bar(metrics, terminal_width(out_) - 1);
  if (print) return print_line(metrics_line(metrics));
  if (!bar_) return;
  fmt::print(out_, "{}{}", erase_line, shown_);
  std::fflush(out_);
}

void Console::show(const EvalMetrics& metrics) { print_line(metrics_line(metrics)); }

}  // namespace bdlm
