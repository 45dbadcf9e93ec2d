// SPDX-License-Identifier: Apache-2.0

// Writes pages, and the JSON beside each that it was made from, for the tests in a browser:
//   make_pages GRAPH FOLDER [BUDGET [STRATEGY]]   profile and plan of a graph, and a run and a sweep
//   make_pages units                              numbers, one a line, as bytes and as ns
// Nothing runs here: a run's bytes are near the predicted ones, its other numbers and those of the sweep are made up.

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "made_up.h"
#include "remat/core/error.h"
#include "remat/core/graph_text.h"
#include "remat/core/plan.h"
#include "remat/core/rewrite.h"
#include "remat/core/simulate.h"
#include "remat/core/units.h"
#include "remat/report/page.h"
#include "remat/report/plan_report.h"
#include "remat/report/profile_report.h"

namespace remat {
namespace {

// "%3C" -> "<". Names in files are plain; those of a recorded program may hold anything.
void decode(std::string& name) {
  for (size_t at = name.find('%'); at != std::string::npos; at = name.find('%', at + 1)) {
    name.replace(at, 3, 1, static_cast<char>(std::stoi(name.substr(at + 1, 2), nullptr, 16)));
  }
}

Graph read_graph(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  Graph graph = parse_graph(text.str());
  for (Storage& storage : graph.storages) decode(storage.name);
  for (Op& op : graph.ops) {
    for (std::string* name : {&op.name, &op.kind, &op.scope}) decode(*name);
  }
  return graph;
}

void write(const std::string& folder, const std::string& page, const std::string& file,
           const std::string& title, const nlohmann::json& json) {
  save_page(page_html(page, title, json), folder + "/" + file + ".html");
  std::ofstream(folder + "/" + file + ".json")
      << json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// A little more than is predicted, so that no curve can stand for the other.
std::vector<int64_t> made_up_bytes(const Graph& graph, const Schedule& schedule) {
  const Simulation simulation = simulate(graph, schedule);
  std::vector<int64_t> bytes;
  for (size_t s = 0; s < schedule.steps.size(); ++s) {
    if (schedule.steps[s].kind == StepKind::free) continue;
    const int64_t more = 1 + static_cast<int64_t>(bytes.size() % 5) * 64;
    bytes.push_back(simulation.timeline[s].bytes + more);
  }
  return bytes;
}

// An interrupted sweep before its first point, too.
void make_sweeps(const std::string& folder, const std::string& title) {
  write(folder, "sweep", "sweep", title, sweep_json(made_up_sweep(title)));
  write(folder, "sweep", "empty", title, sweep_json({.model = title, .interrupted = true}));
}

void print_units() {
  nlohmann::json all = nlohmann::json::array();
  for (int64_t number = 0; std::cin >> number;) {
    all.push_back({format_bytes(number), format_ns(number)});
  }
  std::cout << all.dump() << "\n";
}

void make_pages(const std::string& path, const std::string& folder, const std::string& budget,
                const std::string& strategy) {
  const Graph graph = read_graph(path);
  const std::string title = path.substr(path.rfind('/') + 1);
  nlohmann::json profiled = profile_json(profile(graph, 2));
  profiled.update(profile_details_json(profile(graph, 2)));
  write(folder, "profile", "profile", title, profiled);

  const int64_t budget_bytes = parse_budget(budget, keep_all_baseline(graph).peak_bytes);
  const Plan made = plan(graph, {.budget_bytes = budget_bytes, .strategy = strategy});
  const Schedule schedule = rewrite(graph, made.order);
  const PlanReport report = report_plan(graph, made, schedule, floor(graph, made), budget_bytes);
  nlohmann::json planned = plan_json(report);
  PlanDetails details{graph, made, schedule, report.placement};
  planned.update(plan_details_json(details));
  write(folder, "plan", "plan", title, planned);

  details.measured_bytes = made_up_bytes(graph, schedule);
  nlohmann::json run = run_json(made_up_run(title, report));
  run.update(plan_details_json(details));
  write(folder, "plan", "run", title, run);
  make_sweeps(folder, title);
}

}  // namespace
}  // namespace remat

int main(int argc, char** argv) {
  if (argc == 2 && argv[1] == std::string("units")) {
    remat::print_units();
    return 0;
  }
  if (argc < 3 || argc > 5) {
    std::cerr << "make_pages GRAPH FOLDER [BUDGET [STRATEGY]]\n";
    return 2;
  }
  try {
    remat::make_pages(argv[1], argv[2], argc > 3 ? argv[3] : "50%", argc > 4 ? argv[4] : "search");
  } catch (const remat::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
