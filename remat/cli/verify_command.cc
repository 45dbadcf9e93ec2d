// SPDX-License-Identifier: Apache-2.0

// remat verify: the independent checker on a schedule file, or on a saved plan.

#include <memory>
#include <nlohmann/json.hpp>

#include "remat/cli/command.h"
#include "remat/cli/files.h"
#include "remat/core/error.h"
#include "remat/core/plan_file.h"
#include "remat/core/schedule_text.h"
#include "remat/core/simulate.h"
#include "remat/core/units.h"
#include "remat/core/verify.h"

namespace remat {
namespace {

struct VerifyArguments {
  std::string graph;
  std::string schedule;
  std::vector<std::string> budget;
  std::string json;
};

Schedule load_schedule(const std::string& path, const Graph& graph) {
  const std::string text = read_file(path);
  try {
    return parse_schedule(text, graph);
  } catch (const Error& error) {
    throw Error(shown_path(path) + ": " + without_verb(error.what()));
  }
}

nlohmann::json to_json(const std::optional<Violation>& violation) {
  if (!violation) return nullptr;
  return {{"kind", name(violation->kind)},
          {"step", violation->step},
          {"op", violation->op},
          {"reason", violation->reason}};
}

// Reading a plan checks all of it. It brings its graph and its budget along.
int run_on_plan(const VerifyArguments& arguments) {
  PlanFile file;
  const std::string text = read_file(arguments.graph);
  try {
    file = parse_plan_file(text);
  } catch (const Error& error) {
    throw Error(shown_path(arguments.graph) + ": " + without_verb(error.what()));
  }
  nlohmann::json courses = nlohmann::json::array();
  std::string lines;
  for (const SavedCourse& course : file.courses) {
    courses.push_back({{"reserved_bytes", course.reserved_bytes()},
                       {"peak_bytes", course.plan.peak_bytes},
                       {"strategy", course.plan.strategy}});
    lines += detail::concat("accepted: the same outputs, ", format_bytes(course.reserved_bytes()),
                            " with addresses, ", format_ns(course.plan.time_ns), "\n");
  }
  if (!arguments.json.empty()) {
    write_json(arguments.json, {{"accepted", true},
                                {"library", file.library},
                                {"libtorch", file.libtorch},
                                {"courses", courses}});
  }
  if (arguments.json != "-") write_file("-", lines);
  return kDone;
}

int run(const VerifyArguments& arguments) {
  check_outputs({&arguments.json});
  if (arguments.schedule.empty()) {
    if (!arguments.budget.empty()) {
      throw CLI::ValidationError("--budget", "a saved plan has its own");
    }
    return run_on_plan(arguments);
  }
  if (arguments.budget.empty()) throw CLI::RequiredError("--budget");
  if (arguments.graph == "-" && arguments.schedule == "-") {
    throw CLI::ValidationError("schedule", "standard input is taken by the graph");
  }
  const Graph graph = load_graph(arguments.graph);
  const Schedule schedule = load_schedule(arguments.schedule, graph);
  const int64_t budget =
      parse_budget(arguments.budget.front(), keep_all_baseline(graph).peak_bytes);
  const std::optional<Violation> violation = verify(graph, schedule, budget);
  if (!arguments.json.empty()) {
    write_json(arguments.json, {{"accepted", !violation.has_value()},
                                {"budget_bytes", budget},
                                {"violation", to_json(violation)}});
  }
  if (violation) {
    report_error("remat verify", detail::concat(name(violation->kind), " at step ", violation->step,
                                                " (", violation->op, "): ", violation->reason));
    return kError;
  }
  if (arguments.json != "-") {
    const Peak peak = simulate_peak(graph, schedule);
    write_file("-", detail::concat("accepted: the same outputs, peak ", format_bytes(peak.bytes),
                                   " within the budget of ", format_bytes(budget), ", ",
                                   format_ns(peak.time_ns), "\n"));
  }
  return kDone;
}

}  // namespace

void add_verify_command(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<VerifyArguments>();
  CLI::App* command =
      app.add_subcommand("verify", "Check a schedule against its graph, independently");
  command
      ->add_option("graph", arguments->graph,
                   "A graph file, or alone a plan that plan --save wrote; - is standard input")
      ->required()
      ->type_name("GRAPH|PLAN");
  command
      ->add_option("schedule", arguments->schedule,
                   "A schedule file, as plan --schedule writes it; - is standard input")
      ->type_name("SCHEDULE");
  add_budget_option(*command, arguments->budget, false)->required(false);
  add_json_option(*command, arguments->json);
  command->footer("Exits with 1 and names the first violation if the schedule is wrong.");
  command->callback([arguments, &exit_code] { exit_code = run(*arguments); });
}

}  // namespace remat
