// SPDX-License-Identifier: Apache-2.0
#include "remat/cli/model_source.h"
#include "remat/core/error.h"

namespace remat {

void add_model_commands(CLI::App&, int&) {}
void add_size_options(CLI::App&, ModelOptions&) {}
void add_update_option(CLI::App&, ModelOptions&) {}
void add_offload_option(CLI::App&, MoveOptions&) {}
bool is_model(const std::string&) { return false; }
std::string not_a_model(const std::string&) {
  return "; this tool was built without LibTorch and has no models";
}
MeasuredGraph measured_graph(const ModelOptions& options) {
  throw Error(options.model + ": this tool was built without LibTorch and has no models");
}

}  // namespace remat
