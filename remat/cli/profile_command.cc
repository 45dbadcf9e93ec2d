// SPDX-License-Identifier: Apache-2.0

// remat profile: where time and memory of a model's step go.

#include <memory>
#include <nlohmann/json.hpp>

#include "remat/cli/command.h"
#include "remat/cli/exports.h"
#include "remat/cli/files.h"
#include "remat/cli/measured_step.h"
#include "remat/cli/model_task.h"
#include "remat/cli/page_output.h"
#include "remat/cli/terminal.h"
#include "remat/core/graph_text.h"
#include "remat/report/profile_report.h"

namespace remat {
namespace {

struct ProfileArguments {
  ModelOptions model;
  int depth = 2;
  size_t rows = 12;
  std::string graph;
  PageOutput page;
  std::string json;
  Exports exports;
};

int run(const ProfileArguments& arguments) {
  const bool quiet = check_outputs({&arguments.graph, &arguments.page.html, &arguments.json,
                                       &arguments.exports.trace, &arguments.exports.dot});
  check_csv(arguments.exports);
  ProfileReport report;
  Graph graph;
  {
    Progress progress;
    const models::TrainingTask task = make_task(arguments.model, 1);
    MeasuredStep step = measure_within_memory(arguments.model, open_offloading(arguments.model.moves), task,
                                              task.make_batch(1), progress);
    graph = std::move(step.graph);
    report = profile(graph, arguments.depth);
    report.eager_peak_bytes = step.eager_peak_bytes;
    report.step_ns = step.step_ns;
    report.rounds = step.rounds;
  }
  report.model = model_label(arguments.model);
  if (!arguments.graph.empty()) write_file(arguments.graph, print_graph(graph));
  nlohmann::json json = profile_json(report);
  json.update(model_json(arguments.model));
  nlohmann::json details = nlohmann::json::object();
  if (arguments.page.wants_details() || !arguments.exports.csv.empty()) {
    details = profile_details_json(report);
    write_page(arguments.page, "profile", "Profile of " + report.model, json, details);
  }
  if (!arguments.json.empty()) write_json(arguments.json, json);
  write_trace(arguments.exports, graph, {plain_step(graph)});
  write_dot(arguments.exports, graph, {});
  write_csv(arguments.exports, profile_csv(json, details));
  if (!quiet) write_file("-", profile_text(report, arguments.rows, style_of(1)));
  return kDone;
}

}  // namespace

void add_profile_command(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<ProfileArguments>();
  CLI::App* command = app.add_subcommand(
      "profile", "Capture and measure a model's step; say where time and memory go");
  add_model_arguments(*command, arguments->model);
  add_update_option(*command, arguments->model);
  add_move_options(*command, arguments->model.moves);
  add_offload_option(*command, arguments->model.moves);
  add_depth_option(*command, arguments->depth);
  command->add_option("--rows", arguments->rows, "Layers and kinds of ops to print")
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("N")
      ->capture_default_str();
  command
      ->add_option("--graph", arguments->graph,
                   "Write the graph, for plan, explain and verify; - is standard output")
      ->type_name("FILE");
  add_page_options(*command, arguments->page,
                   "memory over the step, the peak, tables of layers and ops");
  add_json_option(*command, arguments->json);
  add_trace_option(*command, arguments->exports,
                   "Write the step, op by op, for ui.perfetto.dev or chrome://tracing");
  add_dot_options(*command, arguments->exports);
  add_csv_option(*command, arguments->exports);
  command->footer(
      "A step that does not fit into memory is recorded with its values in a file, and timed under a plan; the time of the "
      "whole step is then the planned one's.");
  command->callback([arguments, &exit_code] {
    exit_code = with_plain_errors([&] { return run(*arguments); });
  });
}

}  // namespace remat
