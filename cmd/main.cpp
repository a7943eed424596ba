// SPDX-License-Identifier: Apache-2.0
// bdlm: picks the command, runs it on every rank of the launch, and turns what goes wrong into one
// sentence and an exit status, whether all ranks have met it or one alone.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <map>

#include "cmd/commands.h"
#include "kernels/error.h"
#include "parallel/watchdog.h"
#include "trainer/checkpoint_manifest.h"
#include "trainer/options_value.h"

namespace bdlm {
namespace {

constexpr int status_error = 2, status_defect = 3;
constexpr double grace_seconds = 2;  // for the other ranks to meet the same error

/// Messages go to stderr, results to stdout. Rank 0 speaks, others only warn.
void set_up_log(int rank) {
  auto logger =
      std::make_shared<spdlog::logger>("bdlm", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  // On a terminal a message takes the place of a progress bar (trainer/console.h).
  const std::string start = isatty(STDERR_FILENO) != 0 ? "\r\033[K" : "";
  logger->set_pattern(rank == 0 ? start + "%v" : fmt::format("{}rank {}: %v", start, rank));
  logger->set_level(rank == 0 ? spdlog::level::info : spdlog::level::warn);
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

void print_error(const std::string& message) {
  std::fflush(stdout);
  fmt::print(stderr, "bdlm: {}\n", message);
  std::fflush(stderr);
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown host";
}

/// Where ranks that have failed meet. Its group is made before anything can fail.
class Assembly {
 public:
  explicit Assembly(MpiSession& session)
      : session_(session), traffic_(std::make_shared<Traffic>()) {
    traffic_->activity = std::make_shared<Activity>();
    world_ = mpi_world(traffic_);
  }

  /// If all ranks come here within the grace, what they met is told once and they all end in order.
  /// Otherwise others may be waiting for this rank: it says its own and ends the job.
  void report(const std::string& message, int status) {
    if (session_.size() == 1) return print_error(message);
    const Watchdog watchdog(
        traffic_->activity, grace_seconds, session_.rank(), [&](const std::string&) {
          print_error(fmt::format("rank {} on {}: {}", session_.rank(), host_name(), message));
          session_.abort(status);
        });
    const std::vector<std::string> messages = world_->gather(message, 0);
    std::map<std::string, std::vector<std::size_t>> ranks;
    for (std::size_t rank = 0; rank < messages.size(); ++rank)
      ranks[messages[rank]].push_back(rank);
    for (const auto& [text, those] : ranks) {
      const bool all = ranks.size() == 1;
      print_error(all ? text
                      : fmt::format("rank{} {}: {}", those.size() == 1 ? "" : "s",
                                    fmt::join(those, ", "), text));
    }
    world_->barrier();
  }

 private:
  MpiSession& session_;
  std::shared_ptr<Traffic> traffic_;
  std::unique_ptr<Communicator> world_;
};

/// CLI11 would only say that a command is missing.
void check_command(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  if (word.empty() || word[0] == '-' || std::ranges::count(names, word) > 0) return;
  const std::string near = nearest(word, names);
  fail("'{}' is no command; {}bdlm --help lists all", word,
       near.empty() ? "" : fmt::format("did you mean {}? ", near));
}

int run_command(const Choice& choice, MpiSession& session) {
  Assembly assembly(session);
  try {
    return choice.run(session);
  } catch (const Error& error) {
    assembly.report(error.what(), status_error);
    return status_error;
  } catch (const std::exception& error) {
    assembly.report(fmt::format("defect of bdlm, please report it: {}", error.what()),
                    status_defect);
    return status_defect;
  }
}

int main_of(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is a failed write, told like others
  MpiSession session(argc, argv);
  set_up_log(session.rank());

  CLI::App app("Trains block diffusion language models on any number of ranks", "bdlm");
  app.set_version_flag("--version", fmt::format("bdlm {}", library_version()));
  app.require_subcommand(1);
  app.footer(
      "bdlm COMMAND --help has an example. Under mpirun every rank runs the same command.\n"
      "Exit status: 0 done; 1 the answer is no (parity, checkpoint verify); 2 an error, explained in a line;\n"
      "3 a defect of bdlm; 128 + N ended by signal N.");
  Choice choice;
  for (auto* add : {add_data, add_plan, add_train, add_eval, add_generate, add_checkpoint,
                    add_parity, add_bench, add_doctor}) {
    add(app, choice);
  }
  try {
    check_command(app, argc > 1 ? argv[1] : "");
    app.parse(argc, argv);
  } catch (const Error& error) {
    if (session.rank() == 0) print_error(error.what());
    return status_error;
  } catch (const CLI::ParseError& error) {  // --help is one too
    if (session.rank() != 0) return error.get_exit_code() == 0 ? 0 : status_error;
    if (error.get_exit_code() == 0) return app.exit(error);
    print_error(fmt::format("{}; bdlm COMMAND --help has an example", error.what()));
    return status_error;
  }
  return run_command(choice, session);
}

}  // namespace
}  // namespace bdlm

int main(int argc, char** argv) {
  try {
    return bdlm::main_of(argc, argv);
  } catch (const std::exception& error) {  // before MPI and the log stand
    bdlm::print_error(error.what());
    return bdlm::status_error;
  }
}
