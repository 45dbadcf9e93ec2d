// SPDX-License-Identifier: Apache-2.0
// The verbs of the core for Python: graphs as text, planned, simulated, checked, explained.
#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <optional>

#include "python/bindings/bindings.h"
#include "remat/core/error.h"
#include "remat/core/explain.h"
#include "remat/core/graph_text.h"
#include "remat/core/place.h"
#include "remat/core/plan.h"
#include "remat/core/rewrite.h"
#include "remat/core/schedule_text.h"
#include "remat/core/simulate.h"
#include "remat/core/units.h"
#include "remat/core/verify.h"
#include "remat/libtorch/step.h"

namespace remat::python {
namespace {

namespace py = pybind11;

// Ctrl-C ends planning.
Plan plan_interruptibly(const Graph& graph, PlanOptions options) {
  bool interrupted = false;
  options.stop = [&] {
    const py::gil_scoped_acquire gil;
    interrupted = interrupted || PyErr_CheckSignals() != 0;
    return interrupted;
  };
  Plan made = [&] {
    const py::gil_scoped_release without_gil;
    return plan(graph, options);
  }();
  if (interrupted) {
    throw py::error_already_set();
  }
  return made;
}

void bind_errors(py::module_& module) {
  static py::exception<Error> error(module, "Error", PyExc_RuntimeError);
  static py::exception<Infeasible> infeasible(module, "Infeasible", error.ptr());
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Infeasible& found) {
      py::object made = py::reinterpret_borrow<py::object>(infeasible)(found.what());
      made.attr("budget_bytes") = found.budget_bytes;
      made.attr("floor_bytes") = found.floor_bytes;
      PyErr_SetObject(infeasible.ptr(), made.ptr());
    } catch (const Error& found) {
      PyErr_SetString(error.ptr(), found.what());
    }
  });
}

}  // namespace

void bind_verbs(py::module_& module) {
  bind_errors(module);
  py::class_<Graph>(module, "Graph")
      .def("__str__", &print_graph)
      .def("__eq__", [](const Graph& a, const Graph& b) { return a == b; })
      .def_property_readonly("op_count", [](const Graph& graph) { return graph.ops.size(); })
      .def_property_readonly("ops",
                             [](const Graph& graph) {
                               py::list ops;
                               for (const Op& op : graph.ops) {
                                 py::dict each;
                                 each["name"] = op.name;
                                 each["kind"] = op.kind;
                                 each["phase"] = name(op.phase);
                                 each["scope"] = op.scope;
                                 each["time_ns"] = op.time_ns;
                                 ops.append(each);
                               }
                               return ops;
                             })
      .def_property_readonly("externals",
                             [](const Graph& graph) {
                               py::list made;
                               for (size_t i = 0; i < graph.external_count; ++i) {
                                 const Storage& storage = graph.storages[i];
                                 py::dict each;
                                 each["name"] = storage.name;
                                 each["bytes"] = storage.bytes;
                                 each["role"] = name(storage.role);
                                 made.append(each);
                               }
                               return made;
                             })
      .def_property_readonly("external_bytes", &Graph::external_bytes)
      .def_property_readonly(
          "keep_all_peak_bytes",
          [](const Graph& graph) { return keep_all_baseline(graph).peak_bytes; })
      .def_property_readonly("keep_all_time_ns", [](const Graph& graph) {
        return keep_all_baseline(graph).time_ns;
      });
  py::class_<Plan>(module, "Plan")
      .def_readonly("strategy", &Plan::strategy)
      .def_readonly("feasible", &Plan::feasible)
      .def_readonly("peak_bytes", &Plan::peak_bytes)
      .def_readonly("time_ns", &Plan::time_ns)
      .def_readonly("lower_bound_time_ns", &Plan::lower_bound_time_ns)
      .def_readonly("note", &Plan::note)
      .def_property_readonly("arena_bytes",
                             [](const Plan& plan) {
                               return plan.placement ? std::optional(plan.placement->arena_bytes)
                                                     : std::nullopt;
                             })
      .def_property_readonly("order", [](const Plan& plan) {
        std::vector<int32_t> order;
        for (const OpId op : plan.order) {
          order.push_back(static_cast<int32_t>(op));
        }
        return order;
      });
  py::class_<Schedule>(module, "Schedule")
      .def("__eq__", [](const Schedule& a, const Schedule& b) { return a == b; })
      .def("__len__", [](const Schedule& schedule) { return schedule.steps.size(); });
  py::class_<Simulation>(module, "Simulation")
      .def_readonly("peak_bytes", &Simulation::peak_bytes)
      .def_readonly("peak_step", &Simulation::peak_step)
      .def_readonly("time_ns", &Simulation::time_ns)
      .def_property_readonly("timeline", [](const Simulation& simulation) {
        std::vector<int64_t> bytes;
        for (const Moment& moment : simulation.timeline) {
          bytes.push_back(moment.bytes);
        }
        return bytes;
      });
  py::class_<Violation>(module, "Violation")
      .def_property_readonly("kind", [](const Violation& found) { return name(found.kind); })
      .def_readonly("step", &Violation::step)
      .def_readonly("op", &Violation::op)
      .def_readonly("reason", &Violation::reason);

  module.def("parse_graph", &parse_graph, py::arg("text"));
  module.def("print_graph", &print_graph, py::arg("graph"));
  module.def("parse_schedule", &parse_schedule, py::arg("text"), py::arg("graph"));
  module.def("print_schedule", &print_schedule, py::arg("schedule"), py::arg("graph"));
  module.def("parse_budget", &parse_budget, py::arg("text"), py::arg("whole_bytes"));
  module.def("format_bytes", &format_bytes, py::arg("bytes"));
  module.def("format_ns", &format_ns, py::arg("ns"));
  module.def(
      "plan",
      [](const Graph& graph, int64_t budget_bytes, std::string strategy, bool placed,
         double time_limit_seconds, bool keep_order, uint64_t seed) {
        return plan_interruptibly(graph, {.budget_bytes = budget_bytes,
                                          .strategy = std::move(strategy),
                                          .placed = placed,
                                          .time_limit_seconds = time_limit_seconds,
                                          .keep_order = keep_order,
                                          .seed = seed});
      },
      py::arg("graph"), py::kw_only(), py::arg("budget_bytes"), py::arg("strategy"),
      py::arg("placed"), py::arg("time_limit_seconds"), py::arg("keep_order"), py::arg("seed"));
  module.def(
      "floor_bytes",
      [](const Graph& graph) { return floor(graph).bytes; }, py::arg("graph"),
      py::call_guard<py::gil_scoped_release>());
  module.def("rewrite", [](const Graph& graph, const Plan& plan) { return rewrite(graph, plan.order); },
             py::arg("graph"), py::arg("plan"));
  module.def("simulate", &simulate, py::arg("graph"), py::arg("schedule"));
  module.def("verify", &verify, py::arg("graph"), py::arg("schedule"), py::arg("budget_bytes"));
  module.def(
      "arena_bytes",
      [](const Graph& graph, const Schedule& schedule) { return place(graph, schedule).arena_bytes; },
      py::arg("graph"), py::arg("schedule"));
  module.def(
      "explain",
      [](const Graph& graph, const Plan& plan) {
        py::list made;
        for (const Explanation& each : explain(graph, plan)) {
          py::dict one;
          one["value"] = graph.storage(each.storage).name;
          one["bytes"] = graph.storage(each.storage).bytes;
          one["action"] = name(each.action);
          one["recomputes"] = each.recomputes;
          one["sentence"] = each.sentence;
          made.append(one);
        }
        return made;
      },
      py::arg("graph"), py::arg("plan"));
  module.def("strategies", [] {
    std::vector<std::pair<std::string, std::string>> rows;
    for (const Strategy& each : strategies()) {
      rows.emplace_back(each.name, each.summary);
    }
    return rows;
  });
}

}  // namespace remat::python
