// SPDX-License-Identifier: Apache-2.0
// remat::Step for Python. The step holds no Python object: the function, and everything else that it
// needs of the interpreter, comes with each call as one object, so that Python's collector sees all
// references.
#include "remat/libtorch/step.h"
#include "remat/report/save_html.h"

#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "python/bindings/bindings.h"
#include "remat/libtorch/capturing.h"
#include "remat/libtorch/saved_plan.h"

namespace remat::python {
namespace {

namespace py = pybind11;

constexpr std::chrono::milliseconds kBetweenLooks(10);
constexpr std::chrono::milliseconds kBetweenReports(50);  // of progress

const char* name_of(StepProgress::Stage stage) {
  constexpr const char* kNames[] = {"record", "measure", "plan", "compare"};
  return kNames[static_cast<size_t>(stage)];
}

// That imports the module: nearly always the one that Python handles signals on.
std::thread::id main_thread() {
  static const std::thread::id id = std::this_thread::get_id();
  return id;
}

// An interpreter that ends would end this thread, if it is a daemon, inside of our frames, whose unwinding
// is not made for that. It waits for the end of the process instead.
void wait_if_interpreter_ends() {
#if PY_VERSION_HEX >= 0x030d0000
  const bool ends = Py_IsFinalizing() != 0;
#else
  const bool ends = _Py_IsFinalizing() != 0;
#endif
  while (ends) {
    std::this_thread::sleep_for(std::chrono::hours(1));
  }
}

class WithGil {
 public:
  WithGil() {
    wait_if_interpreter_ends();
    gil_.emplace();
  }

 private:
  std::optional<py::gil_scoped_acquire> gil_;
};

class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() {
    wait_if_interpreter_ends();
    PyEval_RestoreThread(state_);
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

// What the interpreter raised, while C++ unwinds. Its references are only touched with the GIL.
class Raised {
 public:
  void take(py::error_already_set&& error) {
    error_ = std::make_unique<py::error_already_set>(std::move(error));
  }
  bool any() const { return error_ != nullptr; }
  void forget() { error_.reset(); }
  [[noreturn]] void rethrow() {
    const std::unique_ptr<py::error_already_set> error = std::move(error_);
    throw py::error_already_set(*error);
  }

 private:
  std::unique_ptr<py::error_already_set> error_;
};

class PyStep {
 public:
  PyStep(std::optional<int64_t> budget_bytes, std::optional<double> budget_share, bool reports_progress,
         StepOptions options)
      : step_([this](const Batch&) { return call_function(); },
              with_host(budget_bytes, budget_share, reports_progress, std::move(options))) {}

  // `call` is the function, without arguments, that returns a list of tensors; its methods are the rest
  // of what the library may ask the interpreter.
  Batch run(const Batch& batch, const py::object& call) {
    require_idle("expected one call at a time");
    raised_.forget();
    struct Running {
      PyStep& step;
      Running(PyStep& owner, py::handle called) : step(owner) {
        step.running_ = true;
        step.call_ = called;
      }
      ~Running() { step.running_ = false; }
    } const running(*this, call);
    try {
      const WithoutGil without_gil;
      return step_(batch);
    } catch (const Interrupted&) {
      raised_.rethrow();
    } catch (const c10::Error&) {
      torch::translate_exception_to_python(std::current_exception());
      throw py::error_already_set();
    }
  }

  // Between two calls.
  void set_budget_bytes(int64_t bytes) {
    require_idle("expected it to have ended");
    raised_.forget();
    try {
      const WithoutGil without_gil;
      step_.set_budget_bytes(bytes);
    } catch (const Interrupted&) {
      raised_.rethrow();
    }
  }

  // While a call runs, which may replace what is looked at, it is refused.
  const Step& step() const {
    require_idle("expected it to have ended");
    return step_;
  }
  std::string failed_op() const { return running_ ? std::string() : step_.failed_op(); }
  bool undone() const { return !running_ && step_.undone(); }

 private:
  void require_idle(const char* expected) const {
    if (running_) {
      throw Error(std::string("[step] the step is running already, on another thread or in its own function; ") +
                  expected);
    }
  }

  StepOptions with_host(std::optional<int64_t> budget_bytes, std::optional<double> budget_share,
                        bool reports_progress, StepOptions options) {
    if (budget_bytes) {
      options.budget_bytes = *budget_bytes;
    } else if (budget_share) {
      options.budget_of = share_of_plain_peak(*budget_share);
    } else {
      options.budget_of = available_memory();
    }
    options.notice = [this](const std::string& what) {
      const WithGil gil;
      call_.attr("notices").attr("append")(what);
    };
    if (reports_progress) {
      options.progress = [this](const StepProgress& progress) { report_progress(progress); };
    }
    options.host.call_site = [this] {
      const WithGil gil;
      const auto [layer, line] = py::cast<std::pair<std::string, std::string>>(ask("call_site"));
      return CallSite{layer, line};
    };
    options.host.name_of = [this](const at::Tensor& tensor) {
      const WithGil gil;
      return py::cast<std::string>(ask("name_of", tensor));
    };
    options.host.collect = [this] {
      const WithGil gil;
      ask("collect");
    };
    options.host.poll = [this] {
      if (std::this_thread::get_id() != main_thread()) {
        return;  // Python handles signals on its main thread only
      }
      const auto now = std::chrono::steady_clock::now();
      if (now < next_look_) {
        return;
      }
      next_look_ = now + kBetweenLooks;
      const WithGil gil;
      if (PyErr_CheckSignals() != 0) {
        interrupt(py::error_already_set());
      }
    };
    return options;
  }

  // Not for every op, but for every stage. What the user's function raises ends the call, which is undone.
  void report_progress(const StepProgress& progress) {
    const auto now = std::chrono::steady_clock::now();
    if (progress.stage == last_stage_ && now < next_report_) {
      return;
    }
    last_stage_ = progress.stage;
    next_report_ = now + kBetweenReports;
    const WithGil gil;
    try {
      call_.attr("progress")(name_of(progress.stage), progress.ops_done, progress.ops_total,
                             progress.spilled_bytes);
    } catch (py::error_already_set& error) {
      interrupt(std::move(error));
    }
  }

  // A method of the call. Python's own code may be interrupted there, too.
  template <typename... Arguments>
  py::object ask(const char* method, const Arguments&... arguments) {
    try {
      return call_.attr(method)(arguments...);
    } catch (py::error_already_set& error) {
      interrupt_if_asked(error);
      throw;
    }
  }

  Batch call_function() {
    const WithGil gil;
    Batch results;
    try {
      results = py::cast<Batch>(call_());
    } catch (py::error_already_set& error) {
      interrupt_if_asked(error);
      throw;
    }
    interrupt_again();
    return results;
  }

  void interrupt_if_asked(py::error_already_set& error) {
    interrupt_again();
    if (error.matches(PyExc_KeyboardInterrupt)) {
      interrupt(std::move(error));
    }
  }
  // An interrupt that came while an op waited for bytes went through torch, which made another error of it,
  // and through the function, which may have caught that.
  void interrupt_again() const {
    if (raised_.any()) {
      throw Interrupted("[step] interrupted");
    }
  }

  [[noreturn]] void interrupt(py::error_already_set&& error) {
    raised_.take(std::move(error));
    throw Interrupted("[step] interrupted");
  }

  py::handle call_;  // while a call runs, whose caller owns it
  bool running_ = false;
  std::optional<StepProgress::Stage> last_stage_;  // that was reported
  std::chrono::steady_clock::time_point next_report_;
  std::chrono::steady_clock::time_point next_look_;  // for signals: taking the GIL is not for every op
  Raised raised_;
  Step step_;
};

py::dict counts_of(const StepCounts& counts) {
  py::dict made;
  made["peak_bytes"] = counts.peak_bytes;
  made["outside_allocations"] = counts.outside_allocations;
  made["outside_bytes"] = counts.outside_bytes;
  made["moved_bytes"] = counts.moved_bytes;
  made["offloaded_bytes"] = counts.offloaded_bytes;
  made["waited_ns"] = counts.waited_ns;
  return made;
}

py::dict report_of(const PyStep& self) {
  const StepReport report = [&] {
    const py::gil_scoped_release without_gil;
    return self.step().report();
  }();
  py::dict made;
  made["budget_bytes"] = report.budget_bytes;
  made["keep_all_peak_bytes"] = report.keep_all_peak_bytes;
  made["eager_peak_bytes"] = report.eager_peak_bytes;
  made["floor_bytes"] = report.floor_bytes;
  made["predicted_peak_bytes"] = report.predicted_peak_bytes;
  made["measured_peak_bytes"] = report.measured_peak_bytes;
  made["peak_bytes"] = report.peak_bytes;
  made["arena_bytes"] = report.arena_bytes;
  made["external_bytes"] = report.external_bytes;
  py::dict by_role;
  for (size_t i = 0; i < kRoleCount; ++i) {
    by_role[py::str(std::string(name(static_cast<Role>(i))))] = report.external_bytes_by_role[i];
  }
  made["external_bytes_by_role"] = by_role;
  made["keep_all_time_ns"] = report.keep_all_time_ns;
  made["time_ns"] = report.time_ns;
  made["strategy"] = report.strategy;
  made["from_saved_plan"] = report.from_saved_plan;
  made["saved_plan_refused"] = report.saved_plan_refused;
  made["from_other_size"] = report.from_other_size;
  made["improved_plans"] = report.improved_plans;
  made["capture_seconds"] = report.capture_seconds;
  made["measure_seconds"] = report.measure_seconds;
  made["spilled_bytes"] = report.spilled_bytes;
  made["channel"] = report.channel;
  made["channel_bytes"] = report.channel_bytes;
  made["plan_seconds"] = report.plan_seconds;
  made["variants"] = report.variants;
  made["planned_steps"] = report.planned_steps;
  made["plain_steps"] = report.plain_steps;
  made["counts"] = counts_of(report.counts);
  py::list timeline;
  for (const Moment& moment : report.timeline) {
    timeline.append(moment.bytes);
  }
  made["timeline"] = timeline;
  return made;
}

}  // namespace

void bind_step(py::module_& module) {
  main_thread();
  py::class_<PyStep>(module, "Step")
      .def(py::init([](std::optional<int64_t> budget_bytes, std::optional<double> budget_share,
                       std::string strategy, double plan_seconds, double measure_seconds,
                       uint64_t seed, std::optional<int64_t> follow, int max_variants,
                       const std::optional<std::string>& plan,
                       const std::optional<std::string>& spill_folder, bool pack,
                       const std::optional<std::string>& offload_folder, bool watch_memory,
                       bool reports_progress) {
             StepOptions options;
             options.spill_folder = spill_folder.value_or("");
             options.pack = pack;
             options.offload_folder = offload_folder.value_or("");
             options.watch_memory = watch_memory;
             options.strategy = std::move(strategy);
             options.plan_seconds = plan_seconds;
             options.measure_seconds = measure_seconds;
             options.seed = seed;
             options.follow = follow.value_or(kEveryStep);
             options.max_variants = max_variants;
             if (plan) {
               options.saved_plan = load_plan(*plan);
             }
             return std::make_unique<PyStep>(budget_bytes, budget_share, reports_progress, std::move(options));
           }),
           py::kw_only(), py::arg("budget_bytes"), py::arg("budget_share"), py::arg("strategy"),
           py::arg("plan_seconds"), py::arg("measure_seconds"), py::arg("seed"), py::arg("follow"),
           py::arg("max_variants"), py::arg("plan"), py::arg("spill_folder"), py::arg("pack"), py::arg("offload_folder"),
           py::arg("watch_memory"), py::arg("reports_progress"))
      .def("run", &PyStep::run)
      .def("failed_op", [](const PyStep& self) { return self.failed_op(); })
      .def("undone", &PyStep::undone)
      .def("set_budget_bytes", &PyStep::set_budget_bytes)
      .def("report", &report_of)
      .def("save_plan", [](const PyStep& self, const std::string& path) { self.step().save_plan(path); })
      // The objects are the step's; a later call may replace them, so each is a copy.
      .def("graph", [](const PyStep& self) { return self.step().graph(); })
      .def("plan", [](const PyStep& self) { return self.step().plan(); })
      .def("schedule", [](const PyStep& self) { return self.step().schedule(); })
      .def("html",
           [](const PyStep& self, const std::string& title) {
             const py::gil_scoped_release without_gil;
             return plan_html(report_step(self.step(), title));
           },
           py::arg("title"));
  module.def("following", &detail::capturing,
             "Whether a step runs on this thread, recorded or followed.");
}

}  // namespace remat::python
