// SPDX-License-Identifier: Apache-2.0
// Plans as text; and docs/csbp.md shows what the code prints.
#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>

#include "parallel/describe.h"
#include "test_plan_dense.h"

using namespace bdlm;
using namespace bdlm::test;

namespace {

/// The example of docs/csbp.md: 24 tokens, all scored, and 22 of which the first 12 are a prompt.
struct Example {
  Case c;
  PlanOptions options;
  std::vector<StepPlan> plans;

  Example() {
    c.documents = {24, 22};
    c.block_size = 4;
    c.predicts.assign(46, 0);
    for (int i = 0; i < 46; ++i) c.predicts.push_back(i < 24 || i >= 36);
    c.model.windows = {0, 0};
    c.model.kv_width = 16;
    c.model.row_cost = 8;
    plans = make_plans(c.batch(), c.model, options, 3, 0, 3);
  }
};

}  // namespace

TEST_CASE("a picture shows who holds which copy of which block") {
  Case c;
  c.documents = {5, 2};
  c.block_size = 2;
  c.views = 2;
  c.predicts.assign(21, 0);
  c.predicts[7 + 4] = 1;   // view 0, block 2
  c.predicts[14 + 5] = 1;  // view 1, second document
  c.model.windows = {0};
  PlanOptions options;
  options.deal = DealKind::contiguous;
  const auto plans = make_plans(c.batch(), c.model, options, 2, 0, 2);
  CHECK(draw_deal(plans, c.batch()) ==
        "block   0   1   2   | 0\n"
        "rank 0  C.. C.. ... | ...\n"
        "rank 1  ... ... .N. | ..N\n");
  CHECK(draw_readers(plans, 0) ==
        "reads from        0        1\n"
        "rank 0          own        0\n"
        "rank 1            4      own\n");
}

TEST_CASE("the table's last lines are the sum and the most over ranks") {
  const Example e;
  const std::string table = describe_ranks(e.plans, e.c.model, e.options, 2, 4);
  std::istringstream lines(table);
  std::vector<std::vector<std::int64_t>> numbers;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    std::int64_t clean = 0, corrupted = 0, rows = 0, pairs = 0, logits = 0;
    if (words >> name >> clean >> corrupted >> rows >> pairs >> logits) {
      numbers.push_back({clean, corrupted, rows, pairs, logits});
    }
  }
  REQUIRE(numbers.size() == 5);
  for (std::size_t column = 0; column < 5; ++column) {
    CHECK(numbers[3][column] == numbers[0][column] + numbers[1][column] + numbers[2][column]);
    CHECK(numbers[4][column] ==
          std::max({numbers[0][column], numbers[1][column], numbers[2][column]}));
  }
  CHECK(numbers[3][4] == 34);  // all that predict
}

TEST_CASE("pictures stay away where they do not fit") {
  Example e;
  CHECK(describe_plan(e.plans, e.c.batch(), e.c.model, e.options, 2, 4).find("CN") !=
        std::string::npos);
  e.c.documents = {200};
  e.c.predicts.assign(400, 1);
  e.plans = make_plans(e.c.batch(), e.c.model, e.options, 16, 0, 16);
  const std::string text = describe_plan(e.plans, e.c.batch(), e.c.model, e.options, 2, 4);
  CHECK(text.find("CN") == std::string::npos);
  CHECK(text.find("reads from") == std::string::npos);
}

TEST_CASE("docs/csbp.md shows what the code prints") {
  const Example e;
  std::ifstream file(std::string(BDLM_SOURCE) + "/docs/csbp.md");
  REQUIRE(file);
  const std::string page(std::istreambuf_iterator<char>(file), {});
  for (const std::string& text : {draw_deal(e.plans, e.c.batch()), draw_readers(e.plans, 0),
                                  describe_ranks(e.plans, e.c.model, e.options, 2, 4)}) {
    INFO(text);
    CHECK(page.find(text) != std::string::npos);
  }
}
