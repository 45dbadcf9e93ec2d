// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace remat {

inline constexpr int64_t KiB = int64_t{1} << 10;
inline constexpr int64_t MiB = int64_t{1} << 20;
inline constexpr int64_t GiB = int64_t{1} << 30;

// For people: "512 B", "1.5 KiB", "730 MiB". At most four digits, never rounded to another unit.
std::string format_bytes(int64_t bytes);

// For people: "812 ns", "1.25 ms", "3.4 s".
std::string format_ns(int64_t ns);

// A budget as a user types it: bytes with an optional unit (B, KB, MB, GB, TB in powers of 1000;
// KiB, MiB, GiB, TiB in powers of 1024), or a share of `whole_bytes` ("50%"). Rounds down, so that
// the budget is never exceeded by rounding. Throws Error on anything else.
int64_t parse_budget(std::string_view text, int64_t whole_bytes);

}  // namespace remat
