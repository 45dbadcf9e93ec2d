// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "remat/core/graph.h"
#include "remat/core/plan_file.h"

namespace remat {

// The zoo as the command line sees it. Two sources implement this header: model_source.cc, and
// no_models.cc for a build without LibTorch, where there is no model and nothing is added.

// Which ways there are besides keeping a value and making it again.
struct MoveOptions {
  bool pack = true;
  bool offload = true;      // where the graph has a channel, or a folder is given
  std::string folder = {};  // of a model, for the values that are offloaded
};

// --no-pack and --no-offload.
void add_move_options(CLI::App& command, MoveOptions& options);
// --offload, of models.
void add_offload_option(CLI::App& command, MoveOptions& options);

// What the size flags say; 0 is the model's default, or LibTorch's number of threads.
struct ModelOptions {
  std::string model = {};
  int64_t batch = 0;
  int64_t image = 0;
  int64_t sequence = 0;
  int64_t layers = 0;
  int64_t width = 0;
  std::string dtype = "f32";
  int threads = 0;
  std::string optimizer = "none";  // whose update is inside of the step
  MoveOptions moves = {};

  bool sizes_given() const {
    return batch != 0 || image != 0 || sequence != 0 || layers != 0 || width != 0 || threads != 0 ||
           dtype != "f32" || updates_inside() || !moves.folder.empty();
  }
  bool updates_inside() const { return optimizer != "none"; }
};

// models, profile, run, fit and sweep.
void add_model_commands(CLI::App& app, int& exit_code);

// --batch, --image, --seq, --layers, --width, --dtype and --threads, in a group of their own.
void add_size_options(CLI::App& command, ModelOptions& options);
// --optimizer, in the same group.
void add_update_option(CLI::App& command, ModelOptions& options);

bool is_model(const std::string& name);

// Why a name that is no file is no model either, to be added to an error: "; there is no model ...".
std::string not_a_model(const std::string& name);

// A step with times, and what a saved plan says about where it comes from: a file without courses, and a
// course without plan and schedule.
struct MeasuredGraph {
  Graph graph;
  PlanFile origin;
  SavedCourse course;
};

// Captures a step of the model and measures it. Throws Error.
MeasuredGraph measured_graph(const ModelOptions& options);

}  // namespace remat
