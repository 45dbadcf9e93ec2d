// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/scope.h"

namespace remat {
namespace {

// One string per thread, that grows and shrinks: a scope allocates only on a new greatest length.
thread_local std::string path;

char plain(char c) { return c > ' ' && c < 0x7f ? c : '_'; }

}  // namespace

Scope::Scope(std::string_view name) : outer_length_(path.size()) {
  if (name.empty()) return;
  path.reserve(path.size() + 1 + name.size());  // the only line that can throw
  if (!path.empty()) path += '.';
  for (const char c : name) path += plain(c);
}

Scope::~Scope() { path.resize(outer_length_); }

namespace detail {

const std::string& current_scope() { return path; }

std::string scope_text(std::string_view name) {
  std::string text(name);
  for (char& c : text) c = plain(c);
  return text;
}

}  // namespace detail
}  // namespace remat
