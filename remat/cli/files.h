// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace remat {

// The whole file; "-" is standard input. Throws Error.
std::string read_file(const std::string& path);

// Writes all or nothing: a file that is there is replaced only by a complete one, which keeps its
// permissions; devices and pipes are written to. "-" is standard output. Throws Error.
void write_file(const std::string& path, std::string_view content);

// Throws the Error that write_file would, as far as it can be known before: for work that takes
// long. An empty path is a file that nobody asked for.
void check_writable(const std::string& path);

// For messages: "-" is "standard input".
std::string shown_path(const std::string& path);

// "nets/resnet50.graph" -> "resnet50".
std::string name_of_file(const std::string& path);

}  // namespace remat
