// SPDX-License-Identifier: Apache-2.0
#include "remat/core/units.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>

#include "remat/core/error.h"

namespace remat {
namespace {

struct Unit {
  const char* name;
  double size;
};

std::string with_unit(double amount, const char* unit) {
  std::array<char, 64> text{};
  const int decimals = amount >= 100 ? 0 : amount >= 10 ? 1 : 2;
  std::snprintf(text.data(), text.size(), "%.*f", decimals, amount);
  std::string digits = text.data();
  if (digits.find('.') != std::string::npos) {
    digits.erase(digits.find_last_not_of('0') + 1);
    if (digits.back() == '.') digits.pop_back();
  }
  return digits + " " + unit;
}

template <size_t N>
std::string in_largest_unit(int64_t amount, const std::array<Unit, N>& largest_first) {
  for (const Unit& unit : largest_first) {
    if (std::abs(static_cast<double>(amount)) >= unit.size) {
      return with_unit(static_cast<double>(amount) / unit.size, unit.name);
    }
  }
  return std::to_string(amount) + " " + largest_first.back().name;
}

[[noreturn]] void bad_budget(std::string_view text) {
  throw Error(detail::concat("[budget] '", text.substr(0, 40),
                             "' is not a budget; expected bytes with a unit (1.5GiB, 800MB, 4096) "
                             "or a share of the keep-all peak (50%)"));
}

}  // namespace

std::string format_bytes(int64_t bytes) {
  static constexpr std::array<Unit, 5> kUnits = {{{"TiB", 1099511627776.0},
                                                  {"GiB", 1073741824.0},
                                                  {"MiB", 1048576.0},
                                                  {"KiB", 1024.0},
                                                  {"B", 1.0}}};
  return in_largest_unit(bytes, kUnits);
}

std::string format_ns(int64_t ns) {
  static constexpr std::array<Unit, 4> kUnits = {
      {{"s", 1e9}, {"ms", 1e6}, {"us", 1e3}, {"ns", 1.0}}};
  return in_largest_unit(ns, kUnits);
}

int64_t parse_budget(std::string_view text, int64_t whole_bytes) {
  static constexpr std::array<Unit, 11> kUnits = {{{"%", 0.0},
                                                   {"", 1.0},
                                                   {"B", 1.0},
                                                   {"KB", 1e3},
                                                   {"MB", 1e6},
                                                   {"GB", 1e9},
                                                   {"TB", 1e12},
                                                   {"KiB", 1024.0},
                                                   {"MiB", 1048576.0},
                                                   {"GiB", 1073741824.0},
                                                   {"TiB", 1099511627776.0}}};
  double amount = 0;
  const char* end = text.data() + text.size();
  // fixed: no exponent, no sign, no inf or nan slips in as a budget.
  const auto [rest, status] = std::from_chars(text.data(), end, amount, std::chars_format::fixed);
  if (status != std::errc() || !std::isfinite(amount) || amount < 0 || text.front() == '-') {
    bad_budget(text);
  }
  std::string_view unit_name(rest, static_cast<size_t>(end - rest));
  while (!unit_name.empty() && unit_name.front() == ' ') unit_name.remove_prefix(1);
  for (const Unit& unit : kUnits) {
    if (unit_name != unit.name) continue;
    const double bytes =
        unit.size == 0.0 ? amount * static_cast<double>(whole_bytes) / 100.0 : amount * unit.size;
    if (bytes >= static_cast<double>(std::numeric_limits<int64_t>::max())) bad_budget(text);
    // A plain integer number of bytes must not pass through a double: it would lose low digits.
    if (unit.size == 1.0) {
      int64_t whole = 0;
      const auto [stop, ok] = std::from_chars(text.data(), rest, whole);
      if (ok == std::errc() && stop == rest) return whole;
    }
    return static_cast<int64_t>(std::floor(bytes));
  }
  bad_budget(text);
}

}  // namespace remat
