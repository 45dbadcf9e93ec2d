// SPDX-License-Identifier: Apache-2.0

// remat profile: where time and memory of a model's step go.

#include <memory>
#include <nlohmann/json.hpp>

#include "remat/cli/command.h"
#include "remat/cli/files.h"
#include "remat/cli/model_task.h"
#include "remat/core/graph_text.h"
#include "remat/report/profile_report.h"

namespace remat {
namespace {

struct ProfileArguments {
  ModelOptions model;
  int depth = 2;
  size_t rows = 12;
  std::string graph;
  std::string html;
  std::string json;
};

int run(const ProfileArguments& arguments) {
  int to_output = 0;
  for (const std::string* path : {&arguments.graph, &arguments.html, &arguments.json}) {
    to_output += *path == "-" ? 1 : 0;
  }
  if (to_output > 1) {
    throw CLI::ValidationError("--json", "standard output is for one of --graph, --html and --json");
  }
  ProfileReport report;
  Graph graph;
  {
    Progress progress;
    const models::TrainingTask task = make_task(arguments.model, 1);
    MeasuredStep step = capture_and_measure(task, task.make_batch(1), progress);
    graph = std::move(step.measurement.graph);
    report = profile(graph, arguments.depth);
    report.eager_peak_bytes = step.recording.eager_peak_bytes;
    report.step_ns = step.measurement.step_ns;
    report.rounds = step.measurement.rounds;
  }
  report.model = model_label(arguments.model);
  if (!arguments.graph.empty()) write_file(arguments.graph, print_graph(graph));
  if (!arguments.html.empty()) write_file(arguments.html, profile_html(report));
  if (!arguments.json.empty()) {
    nlohmann::json json = profile_json(report);
    json.update(model_json(arguments.model));
    write_json(arguments.json, json);
  }
  if (to_output == 0) write_file("-", profile_text(report, arguments.rows));
  return kDone;
}

}  // namespace

void add_profile_command(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<ProfileArguments>();
  CLI::App* command = app.add_subcommand(
      "profile", "Capture and measure a model's step; say where time and memory go");
  add_model_arguments(*command, arguments->model);
  command
      ->add_option("--depth", arguments->depth,
                   "Parts of a layer's name that count: layer1.0.conv2 has three; 0 is all")
      ->check(CLI::Range(0, 100))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--rows", arguments->rows, "Layers and kinds of ops to print")
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("N")
      ->capture_default_str();
  command
      ->add_option("--graph", arguments->graph,
                   "Write the graph, for plan, explain and verify; - is standard output")
      ->type_name("FILE");
  command
      ->add_option("--html", arguments->html,
                   "Write a page with the timeline and the tables; - is standard output")
      ->type_name("FILE");
  add_json_option(*command, arguments->json);
  command->callback([arguments, &exit_code] {
    exit_code = with_plain_errors([&] { return run(*arguments); });
  });
}

}  // namespace remat
