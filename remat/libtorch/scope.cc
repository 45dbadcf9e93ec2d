// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/scope.h"

namespace remat {
namespace {

// One string per thread, that grows and shrinks: a scope allocates only on a new greatest length.
thread_local std::string path;

}  // namespace

Scope::Scope(std::string_view name) : outer_length_(path.size()) {
  if (name.empty()) return;
  path.reserve(path.size() + 1 + name.size());  // the only line that can throw
  if (!path.empty()) path += '.';
  for (const char c : name) path += c > ' ' && c < 0x7f ? c : '_';
}

Scope::~Scope() { path.resize(outer_length_); }

namespace detail {

const std::string& current_scope() { return path; }

}  // namespace detail
}  // namespace remat
