// SPDX-License-Identifier: Apache-2.0
// One file a command. Each add_... hangs a subcommand with its options and an example on the app;
// its callback stores what is to be run, main runs it and turns errors into one sentence and a
// status for all ranks.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "parallel/communicator.h"

namespace bdlm {

/// What the chosen subcommand will do; returns the exit status. Collective over the launch.
struct Choice {
  std::function<int(MpiSession&)> run;
};

void add_train(CLI::App& app, Choice& choice);
void add_plan(CLI::App& app, Choice& choice);
void add_eval(CLI::App& app, Choice& choice);
void add_generate(CLI::App& app, Choice& choice);
void add_data(CLI::App& app, Choice& choice);
void add_checkpoint(CLI::App& app, Choice& choice);
void add_parity(CLI::App& app, Choice& choice);
void add_bench(CLI::App& app, Choice& choice);
void add_doctor(CLI::App& app, Choice& choice);

}  // namespace bdlm
