// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "remat/core/plan_file.h"
#include "remat/libtorch/tape.h"

namespace remat {

struct StepOptions;
namespace detail {
class Channel;
}

// Plans that outlive the process (core/plan_file.h): what `save_plan` of a step wrote, or
// `remat plan --save`.
//
//   step.save_plan("gpt.plan");                                                   // one process
//   remat::Step step(function, {.budget_bytes = b, .saved_plan = remat::load_plan("gpt.plan")});
//
// Throws Error where the file cannot be read, is damaged or wrong in any way, or was made by another
// version of this library or with another LibTorch. Whether it is a plan for *this* program shows
// when the step is recorded: see find_course.
PlanFile load_plan(const std::string& path);
// What load_plan does with the text of a file; `name` stands before the reason.
PlanFile checked_plan(std::string_view text, const std::string& name);

// All or nothing: a file that is there is replaced by a complete one.
void save_plan(const PlanFile& file, const std::string& path);

std::string_view libtorch_version();  // "2.13.0"

// A number that two recordings of one program have in common, in whatever process they were made:
// of the calls, their constants but for numbers that may change from step to step, and the windows
// through which they look at storages.
uint64_t fingerprint(const Recording& recording);

// The tensors of the batch as the first op sees them, a word each: "input0:Float[8,3,32,32]".
std::vector<std::string> describe_inputs(const Recording& recording);

// A course of a file, without graph and plan: where it comes from.
SavedCourse describe_course(const Recording& recording);
// A planned recording as part of a file. The plan must be feasible and placed.
SavedCourse save_course(const Recording& recording, Graph measured, Plan plan, int64_t budget_bytes);
// A file of such courses, made by this library and this LibTorch.
PlanFile plan_file_of(std::vector<SavedCourse> courses);

// The course that is a plan for this recording: of the same program, with the same shapes and number
// of threads. A course that was planned from a graph file is one for every recording of that graph.
struct FoundCourse {
  const SavedCourse* course = nullptr;
  std::string refusal = {};  // where there is none: in what the nearest one differs
};
FoundCourse find_course(const PlanFile& file, const Recording& recording);

// Makes the recording pack and offload as the course does, to `channel` if there is one. Why that is not
// possible; empty if it is.
std::string take_moves(const SavedCourse& course, const detail::Channel* channel, Recording& recording);

namespace detail {
struct Variant;

// Gives a variant, whose recording has just been made, the plan of options.saved_plan, if that has
// one for it that fits the budget; its report says so, or why not.
bool take_saved_plan(Variant& variant, const StepOptions& options);

PlanFile plan_file_of(const std::vector<std::unique_ptr<Variant>>& variants);
}  // namespace detail

}  // namespace remat
