// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <new>

#include "remat/cli/command.h"
#include "remat/cli/help.h"
#include "remat/cli/model_source.h"

namespace {

extern "C" void on_interrupt(int) { std::_Exit(remat::kInterrupted); }

// The sub-command that was being run, for messages: "remat plan".
std::string command_name(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? "remat" : "remat " + chosen.front()->get_name();
}

// CLI11 would only say that a sub-command is missing.
std::string usage_message(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<std::string> unknown = app.remaining();
  if (!app.get_subcommands().empty() || unknown.empty()) return error.what();
  return "'" + unknown.front() + "' is not a command";
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGINT, on_interrupt);
  int exit_code = remat::kDone;
  CLI::App app("remat: train inside a memory budget", "remat");
  app.set_version_flag("--version", "remat " REMAT_VERSION);
  app.require_subcommand(1);
  app.formatter(remat::help_formatter());
  remat::add_model_commands(app, exit_code);
  remat::add_plan_command(app, exit_code);
  remat::add_explain_command(app, exit_code);
  remat::add_verify_command(app, exit_code);
  try {
    app.parse(argc, argv);
    return exit_code;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    const std::string command = command_name(app);
    remat::report_error(command, usage_message(app, error) + "; see " + command + " --help");
    return remat::kUsage;
  } catch (const std::bad_alloc&) {
    remat::report_error(command_name(app), "out of memory");
  } catch (const std::exception& error) {
    remat::report_error(command_name(app), error.what());
  }
  return remat::kError;
}
