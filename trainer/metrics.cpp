// SPDX-License-Identifier: Apache-2.0
// Metrics as JSON lines and as curves.
#include "trainer/metrics.h"

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "kernels/error.h"

namespace bdlm {
namespace {

// Keeps the order of the struct; a NaN or an infinity, which JSON does not have, becomes null.
using Json = nlohmann::ordered_json;

Json finite(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

using Curves = std::vector<std::pair<std::string, double>>;

void add(Curves& curves, const char* tag, double value) {
  if (!std::isnan(value)) curves.emplace_back(tag, value);
}

}  // namespace

std::string to_json(const StepMetrics& m) {
  Json out;
  out["kind"] = "step";
  out["step"] = m.step;
  out["steps"] = m.steps;
  out["loss"] = finite(m.loss);
  out["diffusion_loss"] = finite(m.diffusion_loss);
  out["ar_loss"] = finite(m.ar_loss);
  out["aux_loss"] = finite(m.aux_loss);
  out["nelbo"] = finite(m.nelbo);
  out["grad_norm"] = finite(m.grad_norm);
  out["lr"] = finite(m.lr);
  out["tokens"] = m.tokens;
  out["tokens_per_second"] = finite(m.tokens_per_second);
  out["tokens_per_second_per_device"] = finite(m.tokens_per_second_per_device);
  out["mfu"] = finite(m.mfu);
  out["memory_peak"] = finite(m.memory_peak);
  out["exposed_communication"] = finite(m.exposed_communication);
  out["step_seconds"] = finite(m.step_seconds);
  out["skipped"] = m.skipped;
  out["eta"] = finite(m.eta);
  out["first_row"] = m.first_row;
  out["rows"] = m.rows;
  out["eligible"] = m.eligible;
  out["masked"] = m.masked;
  out["documents"] = m.documents;
  out["ar_pairs"] = m.ar_pairs;
  out["fingerprint"] = m.fingerprint;
  out["useful_flops_per_second"] = finite(m.useful_flops_per_second);
  out["attention_forward_pairs"] = m.attention_forward_pairs;
  out["attention_backward_pairs"] = m.attention_backward_pairs;
  for (const auto& [purpose, bytes] : m.received) out["received"][purpose] = bytes;
  for (const auto& [kind, bytes] : m.memory) out["memory"][kind] = bytes;
  return out.dump();
}

std::string to_json(const EvalMetrics& m) {
  Json out;
  out["kind"] = "eval";
  out["step"] = m.step;
  out["nelbo"] = finite(m.nelbo);
  out["perplexity"] = finite(m.perplexity);
  out["tokens"] = m.tokens;
  out["seconds"] = finite(m.seconds);
  return out.dump();
}

Curves curves(const StepMetrics& m) {
  Curves out;
  add(out, "train/loss", m.loss);
  add(out, "train/diffusion_loss", m.diffusion_loss);
  add(out, "train/ar_loss", m.ar_loss);
  add(out, "train/aux_loss", m.aux_loss);
  add(out, "train/nelbo", m.nelbo);
  add(out, "train/grad_norm", m.grad_norm);
  add(out, "train/lr", m.lr);
  add(out, "train/skipped", static_cast<double>(m.skipped));
  add(out, "speed/tokens_per_second", m.tokens_per_second);
  add(out, "speed/tokens_per_second_per_device", m.tokens_per_second_per_device);
  add(out, "speed/mfu", m.mfu);
  add(out, "speed/exposed_communication", m.exposed_communication);
  add(out, "speed/step_seconds", m.step_seconds);
  add(out, "memory/peak", m.memory_peak);
  return out;
}

Curves curves(const EvalMetrics& m) {
  Curves out;
  add(out, "eval/nelbo", m.nelbo);
  add(out, "eval/perplexity", m.perplexity);
  return out;
}

MetricsFile::MetricsFile(std::string path)
    : path_(std::move(path)), file_(std::fopen(path_.c_str(), "a+b")) {
  require(file_ != nullptr, "cannot write metrics to {}: {}", path_, std::strerror(errno));
  const bool empty = std::fseek(file_.get(), -1, SEEK_END) != 0;
  if (!empty && std::fgetc(file_.get()) != '\n') append("");
}

void MetricsFile::append(const std::string& line) {
  std::fseek(file_.get(), 0, SEEK_END);  // C asks for it between reading and writing
  const std::string whole = line + "\n";
  bool written = std::fwrite(whole.data(), 1, whole.size(), file_.get()) == whole.size();
  written = std::fflush(file_.get()) == 0 && written;
  require(written, "cannot write metrics to {}: {}", path_, std::strerror(errno));
}

}  // namespace bdlm
