// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <memory>

namespace remat {

// How --help is written: lines of at most 100 columns, and of an option's argument only what a user must
// know (CLI11 would add the C++ type and its range). For the app, before its commands are added.
std::shared_ptr<CLI::Formatter> help_formatter();

}  // namespace remat
