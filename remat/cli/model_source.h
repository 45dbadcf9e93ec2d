// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "remat/core/graph.h"

namespace remat {

// The zoo as the command line sees it. Two sources implement this header: model_source.cc, and
// no_models.cc for a build without LibTorch, where there is no model and nothing is added.

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

  bool sizes_given() const {
    return batch != 0 || image != 0 || sequence != 0 || layers != 0 || width != 0 || threads != 0 ||
           dtype != "f32";
  }
};

// models, profile and run.
void add_model_commands(CLI::App& app, int& exit_code);

// --batch, --image, --seq, --layers, --width, --dtype and --threads, in a group of their own.
void add_size_options(CLI::App& command, ModelOptions& options);

bool is_model(const std::string& name);

// Why a name that is no file is no model either, to be added to an error: "; there is no model ...".
std::string not_a_model(const std::string& name);

// Captures a step of the model and measures it. Throws Error.
Graph measured_graph(const ModelOptions& options);

}  // namespace remat
