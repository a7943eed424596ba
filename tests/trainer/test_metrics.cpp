// SPDX-License-Identifier: Apache-2.0
// Metrics as JSON lines, as curves, and as what rank 0 prints.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "kernels/error.h"
#include "trainer/console.h"
#include "trainer/metrics.h"

using namespace bdlm;
using Catch::Matchers::Contains;

namespace {

StepMetrics example() {
  StepMetrics m;
  m.step = 20;
  m.steps = 1000;
  m.loss = 3.25;
  m.grad_norm = std::numeric_limits<double>::infinity();
  m.lr = 3e-4;
  m.tokens = 5'000'000'000;
  m.tokens_per_second = 12345;
  m.eta = 487;
  return m;
}

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

}  // namespace

TEST_CASE("a step is one JSON object without NaN") {
  const std::string line = to_json(example());
  CHECK(line.find('\n') == std::string::npos);
  const auto json = nlohmann::json::parse(line);
  CHECK(json["kind"] == "step");
  CHECK(json["step"] == 20);
  CHECK(json["loss"] == 3.25);
  CHECK(json["tokens"] == 5'000'000'000);
  CHECK(json["grad_norm"].is_null());  // infinite
  CHECK(json["mfu"].is_null());        // not measured
  CHECK(json["lr"].get<double>() == 3e-4);
}

TEST_CASE("metrics.jsonl is appended to, also after a crash in a line") {
  const auto folder = std::filesystem::temp_directory_path() / "bdlm_test_metrics";
  std::filesystem::create_directories(folder);
  const std::string path = (folder / "metrics.jsonl").string();
  std::filesystem::remove(path);
  {
    MetricsFile file(path);
    file.write(example());
    CHECK(lines_of(path).size() == 1);  // on disk at once
  }
  std::ofstream(path, std::ios::app) << "{\"step\": 2";
  {
    MetricsFile file(path);
    file.write(EvalMetrics{.step = 21, .nelbo = 1, .perplexity = std::exp(1.0), .tokens = 9});
  }
  { MetricsFile reopened(path); }
  const auto lines = lines_of(path);
  REQUIRE(lines.size() == 3);
  CHECK(nlohmann::json::parse(lines[0])["step"] == 20);
  CHECK(nlohmann::json::parse(lines[2])["kind"] == "eval");
  std::filesystem::remove_all(folder);
  CHECK_THROWS_WITH(MetricsFile("/nowhere/metrics.jsonl"), Contains("/nowhere/metrics.jsonl"));
}

TEST_CASE("a full disk is an error, not a lost line") {
  if (!std::filesystem::exists("/dev/full")) return;
  const auto write = [] { MetricsFile("/dev/full").write(example()); };
  CHECK_THROWS_WITH(write(), Contains("No space left"));
}

TEST_CASE("curves leave out what was not measured") {
  bool loss = false;
  for (const auto& [tag, value] : curves(example())) {
    CHECK_FALSE(std::isnan(value));
    CHECK(tag != "speed/mfu");
    loss |= tag == "train/loss" && value == 3.25;
  }
  CHECK(loss);
}

TEST_CASE("the printed line has what was measured") {
  StepMetrics m = example();
  CHECK(metrics_line(m) ==
        "step 20/1000  loss 3.2500  grad inf  lr 3.00e-04  tok/s 12.3k  left 8m07s");
  m.ar_loss = 2;
  m.diffusion_loss = 1.5;
  m.tokens_per_second_per_device = 950;
  m.mfu = 0.412;
  m.memory_peak = 13.0 * 1024 * 1024 * 1024;
  m.exposed_communication = 0.1;
  m.step_seconds = 2;
  m.skipped = 3;
  CHECK_THAT(metrics_line(m), Contains("diffusion 1.5000  ar 2.0000") && Contains("a device 950") &&
                                  Contains("mfu 41.2%") && Contains("mem 13.0 GiB") &&
                                  Contains("comm 5.0%") && Contains("skipped 3"));
}

TEST_CASE("numbers for people") {
  CHECK(duration_text(0) == "0s");
  CHECK(duration_text(59.4) == "59s");
  CHECK(duration_text(60) == "1m00s");
  CHECK(duration_text(3 * 3600 + 5 * 60) == "3h05m");
  CHECK(duration_text(2 * 86400 + 4 * 3600) == "2d04h");
  CHECK(count_text(950) == "950");
  CHECK(count_text(999'999) == "999k");
  CHECK(count_text(4.56e6) == "4.56M");
  CHECK(bytes_text(0) == "0 B");
  CHECK(bytes_text(1536) == "1.5 KiB");
}

TEST_CASE("the bar keeps to its width") {
  const StepMetrics m = example();
  for (const int width : {0, 1, 10, 40, 60, 79, 200}) {
    CHECK(static_cast<int>(progress_bar(m, width).size()) <= width);
  }
  CHECK_THAT(progress_bar(m, 100), Contains("20/1000") && Contains("8m07s left"));
  StepMetrics end = m;
  end.step = end.steps;
  CHECK_THAT(progress_bar(end, 100), Contains("[##############################]"));
}

TEST_CASE("no bar where there is no terminal") {
  std::FILE* file = std::tmpfile();
  {
    Console console(file, true);
    console.show(example(), false);
    console.show(example(), true);
  }
  CHECK(std::ftell(file) == static_cast<long>(metrics_line(example()).size()) + 1);
  std::fclose(file);
}
