// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/saved_plan.h"

#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "remat/core/error.h"
#include "remat/core/moves.h"
#include "remat/core/rewrite.h"
#include "remat/core/units.h"
#include "remat/libtorch/op_traits.h"
#include "remat/libtorch/op_values.h"
#include "remat/libtorch/trace.h"
#include "remat/libtorch/variant.h"

namespace remat {
namespace {

using detail::concat;

constexpr std::string_view kNoLibTorch = "none";  // planned from a graph file

[[noreturn]] void fail(const char* verb, const char* what, const std::string& path) {
  throw Error(concat("[", verb, "] cannot ", what, " ", path, ": ", std::strerror(errno)));
}

// A number may be another one in the next step; of what kind it is belongs to the program.
void add_constant(std::ostream& out, const c10::IValue& value, bool free_number) {
  out << value.tagKind();
  if (value.isList()) {
    const auto elements = value.toListRef();
    out << elements.size() << '[';
    for (const c10::IValue& each : elements) {
      if (!each.isTensor()) {
        add_constant(out, each, free_number);
      }
    }
    out << ']';
  } else if (free_number) {
    return;
  } else if (value.isDouble()) {
    const double number = value.toDouble();
    out << (number == number ? std::bit_cast<uint64_t>(number) : uint64_t{0});
  } else if (value.isComplexDouble()) {
    const auto number = value.toComplexDouble();
    out << std::bit_cast<uint64_t>(number.real()) << ',' << std::bit_cast<uint64_t>(number.imag());
  } else if (value.isInt()) {
    out << value.toInt();
  } else if (value.isBool()) {
    out << value.toBool();
  } else if (value.isString()) {
    out << value.toStringRef().size() << ':' << value.toStringRef();
  } else if (value.isDevice()) {
    out << value.toDevice();
  }
}

void add_numbers(std::ostream& out, c10::ArrayRef<int64_t> numbers) {
  for (const int64_t number : numbers) {
    out << number << ',';
  }
  out << ';';
}

void add_view(std::ostream& out, const TensorView& view) {
  out << static_cast<int>(view.storage) << ':' << static_cast<int>(view.dtype) << ':';
  add_numbers(out, view.sizes);
  add_numbers(out, view.strides);
  out << view.offset << view.wrapped_number << view.conjugated << view.negated;
}

void add_place(std::ostream& out, const TensorPlace& place) {
  out << place.position << '.' << place.element << ' ';
}

void add_call(std::ostream& out, const TapeOp& call) {
  const c10::FunctionSchema& schema = call.op.schema();
  out << schema.name() << '.' << schema.overload_name() << ' ' << call.grad_mode << '(';
  const std::vector<bool>& free_number = detail::traits_of(call.op).free_number;
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    add_constant(out, call.arguments[i], free_number[i]);
    out << ' ';
  }
  for (const TensorArgument& argument : call.tensors) {
    add_place(out, argument.place);
    add_view(out, argument.view);
    out << argument.shape_only << ' ';
  }
  out << ")->";
  for (const TensorPlace& result : call.results) {
    add_place(out, result);
  }
  out << '\n';
}

std::string joined(const std::vector<std::string>& words) {
  std::string all;
  for (const std::string& word : words) {
    all += (all.empty() ? "" : ", ") + word;
  }
  return all.empty() ? "nothing" : all;
}

// What was looked at in this order; the later a course fails, the nearer it is.
enum class Stage : uint8_t { inputs, threads, graph, calls, same };
struct Comparison {
  Stage stage = Stage::same;
  std::string difference = {};
};

Comparison compare(const SavedCourse& course, const Recording& recording) {
  const bool of_program = course.fingerprint.has_value();
  if (of_program && course.inputs != describe_inputs(recording)) {
    return {Stage::inputs, concat("it was made for a batch of ", joined(course.inputs),
                                  "; this one is ", joined(describe_inputs(recording)))};
  }
  if (of_program && course.threads != recording.threads) {
    return {Stage::threads, concat("it was made with ", course.threads, " threads; the step runs with ",
                                   recording.threads)};
  }
  const std::string difference = graph_difference(course.graph, recording.graph);
  if (!difference.empty()) {
    return {Stage::graph, "it was made for another program: " + difference};
  }
  if (of_program && *course.fingerprint != fingerprint(recording)) {
    return {Stage::calls, "it was made for another program: its ops are the same, but a constant, a type "
                          "or a view is not"};
  }
  return {};
}

}  // namespace

std::string_view libtorch_version() { return TORCH_VERSION; }

PlanFile load_plan(const std::string& path) {
  std::error_code unknown;
  if (std::filesystem::is_directory(path, unknown)) {
    errno = EISDIR;
    fail("load_plan", "read", path);
  }
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) {
    fail("load_plan", "read", path);
  }
  return checked_plan(text, path);
}

PlanFile checked_plan(std::string_view text, const std::string& name) {
  const auto refuse = [&](const std::string& reason) {
    throw Error(concat("[load_plan] ", name, ": ", reason));
  };
  PlanFile file;
  try {
    file = parse_plan_file(text);
  } catch (const Error& error) {
    const std::string_view reason = error.what();
    refuse(std::string(reason.substr(reason.find("] ") + 2)));
  }
  if (file.library != library_version()) {
    refuse(concat("the plan was made by remat ", file.library, "; this is ", library_version(),
                  ": save the plan again"));
  }
  if (file.libtorch != libtorch_version() && file.libtorch != kNoLibTorch) {
    refuse(concat("the plan was made with LibTorch ", file.libtorch, "; this is ", libtorch_version(),
                  ": save the plan again"));
  }
  return file;
}

void save_plan(const PlanFile& file, const std::string& path) {
  const std::string part = concat(path, ".", ::getpid(), ".part");
  {
    std::ofstream out(part, std::ios::binary | std::ios::trunc);
    out << print_plan_file(file) << std::flush;
    if (!out) {
      const int reason = errno;
      ::unlink(part.c_str());
      errno = reason;
      fail("save_plan", "write", path);
    }
  }
  std::error_code error;
  std::filesystem::rename(part, path, error);
  if (error) {
    ::unlink(part.c_str());
    throw Error(concat("[save_plan] cannot write ", path, ": ", error.message()));
  }
}

uint64_t fingerprint(const Recording& recording) {
  std::ostringstream text;
  for (const TapeOp& call : recording.tape) {
    add_call(text, call);
  }
  const std::string whole = text.str();
  return detail::digest(whole.data(), whole.size());
}

std::vector<std::string> describe_inputs(const Recording& recording) {
  std::vector<std::string> inputs(recording.graph.external_count);
  for (const TapeOp& call : recording.tape) {
    for (const TensorArgument& argument : call.tensors) {
      const size_t storage = index(argument.view.storage);
      if (storage < inputs.size() && inputs[storage].empty() &&
          recording.graph.storages[storage].role == Role::input) {
        std::ostringstream text;
        text << recording.graph.storages[storage].name << ':' << c10::toString(argument.view.dtype);
        char separator = '[';
        for (const int64_t size : argument.view.sizes) {
          text << separator << size;
          separator = ',';
        }
        text << (argument.view.sizes.empty() ? "[]" : "]");
        inputs[storage] = text.str();
      }
    }
  }
  std::erase_if(inputs, [](const std::string& input) { return input.empty(); });
  return inputs;
}

SavedCourse describe_course(const Recording& recording) {
  SavedCourse course;
  course.fingerprint = fingerprint(recording);
  course.threads = recording.threads;
  course.inputs = describe_inputs(recording);
  return course;
}

SavedCourse save_course(const Recording& recording, Graph measured, Plan plan, int64_t budget_bytes) {
  SavedCourse course = describe_course(recording);
  course.budget_bytes = budget_bytes;
  course.schedule = rewrite(measured, plan.order);
  course.graph = std::move(measured);
  course.plan = std::move(plan);
  return course;
}

PlanFile plan_file_of(std::vector<SavedCourse> courses) {
  return {std::string(library_version()), std::string(libtorch_version()), std::move(courses)};
}

FoundCourse find_course(const PlanFile& file, const Recording& recording) {
  Comparison nearest{Stage::inputs, "it holds no plan"};
  for (const SavedCourse& course : file.courses) {
    Comparison comparison = compare(course, recording);
    if (comparison.stage == Stage::same) {
      return {&course};
    }
    if (&course == &file.courses.front() || comparison.stage > nearest.stage) {
      nearest = std::move(comparison);
    }
  }
  return {nullptr, nearest.difference};
}

std::string take_moves(const SavedCourse& course, const detail::Channel* channel, Recording& recording) {
  std::vector<PackedValue> values;
  for (const PackedForm& form : course.graph.packed_forms) {
    const auto found = std::ranges::find_if(recording.graph.packed_forms, [&](const PackedForm& here) {
      return here.storage == form.storage && here.rule == form.rule && here.bytes == form.bytes &&
             here.readers == form.readers;
    });
    if (found == recording.graph.packed_forms.end()) {
      return concat("it packs ", course.graph.storage(form.storage).name, " (", form.rule,
                    "), which is not possible here");
    }
    values.push_back(recording.packed_values[static_cast<size_t>(found - recording.graph.packed_forms.begin())]);
  }
  const int64_t alignment = course.graph.channel ? course.graph.channel->alignment : 1;
  if (course.plan.placement->channel_bytes > 0) {
    if (channel == nullptr) {
      return "it offloads values; set offload_folder";
    }
    if (alignment % channel->alignment_bytes() != 0) {
      return concat("it offloads from addresses that are multiples of ", alignment, "; the channel takes those of ",
                    channel->alignment_bytes());
    }
  }
  recording.packed_values = std::move(values);
  recording.graph.packed_forms = course.graph.packed_forms;
  recording.graph.channel = channel != nullptr ? course.graph.channel : std::nullopt;
  add_moves(recording.graph);
  return "";
}

bool detail::take_saved_plan(Variant& variant, const StepOptions& options) {
  if (!options.saved_plan) {
    return false;
  }
  auto [course, refusal] = find_course(*options.saved_plan, variant.recording());
  if (course != nullptr) {
    const int64_t budget_bytes = variant.report.budget_bytes;
    if (course->reserved_bytes() > budget_bytes) {
      refusal = concat("it needs ", format_bytes(course->reserved_bytes()), "; the budget is ",
                       format_bytes(budget_bytes));
    } else {
      refusal = take_moves(*course, options.execute.channel.get(), variant.made.recording);
    }
    if (refusal.empty()) {
      // Without a channel the graph has fewer moves, and the same ones before them.
      variant.graph = course->graph;
      variant.graph.channel = variant.recording().graph.channel;
      add_moves(variant.graph);
      variant.planned = {.plan = course->plan, .schedule = course->schedule, .budget_bytes = budget_bytes};
      variant.report.from_saved_plan = true;
      return true;
    }
  }
  variant.report.saved_plan_refused = refusal;
  if (options.notice) {
    options.notice("the saved plan is not used, and the step is measured and planned again: " + refusal);
  }
  return false;
}

PlanFile detail::plan_file_of(const std::vector<std::unique_ptr<Variant>>& variants) {
  if (std::ranges::none_of(variants, [](const auto& each) { return each->has_plan(); })) {
    throw Error("[save_plan] nothing to save: no call of the step has been planned yet; run it first");
  }
  std::vector<SavedCourse> courses;
  for (const auto& variant : variants) {
    if (variant->has_plan()) {  // else what its plan used has failed, and it is planned again when it is called
      courses.push_back(save_course(variant->recording(), variant->graph, variant->plan(),
                                    variant->report.budget_bytes));
    }
  }
  return remat::plan_file_of(std::move(courses));
}

}  // namespace remat
