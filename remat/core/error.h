// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace remat {

// The caller or the world is wrong. The message names the verb in brackets, what was found, what
// was expected and what to do: "[parse_graph] line 7: unknown key 'size'; expected one of ...".
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

namespace detail {

// Joins anything that can be written to a stream: concat("line ", 7) == "line 7".
template <typename... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

[[noreturn]] inline void assert_failed(const char* condition, const char* file, int line) {
  throw std::logic_error(concat("remat: internal error: ", condition, " at ", file, ":", line));
}

}  // namespace detail
}  // namespace remat

// Our own mistake, never the caller's. Active in Debug builds and wherever REMAT_CHECKED is defined
// (every CI run). It throws std::logic_error: the library does not abort its user's program.
#if !defined(NDEBUG) || defined(REMAT_CHECKED)
#define REMAT_ASSERT(condition) \
  ((condition) ? void(0) : ::remat::detail::assert_failed(#condition, __FILE__, __LINE__))
#else
#define REMAT_ASSERT(condition) void(0)
#endif
