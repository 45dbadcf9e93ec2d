// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace remat::testing {

// A text that is wrong in one place, made from one that is right.
inline std::string replaced(std::string_view whole, std::string_view from, std::string_view to) {
  std::string text(whole);
  const size_t at = text.find(from);
  if (at == std::string::npos) throw std::logic_error("nothing to replace: " + std::string(from));
  return text.replace(at, from.size(), to);
}

}  // namespace remat::testing
