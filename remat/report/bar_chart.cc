// SPDX-License-Identifier: Apache-2.0
#include "remat/report/bar_chart.h"

#include <fmt/format.h>

#include <algorithm>

#include "remat/core/units.h"
#include "remat/report/numbers.h"
#include "remat/report/table.h"

namespace remat {
namespace {

constexpr int kLeastWidth = 10;
constexpr int kMostWidth = 60;

// `eighths` of a column, in as many full blocks as there are and a narrower one.
std::string blocks(int64_t eighths) {
  constexpr const char* kParts[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  std::string text;
  for (int64_t i = 0; i < eighths / 8; ++i) text += "█";
  return text + kParts[eighths % 8];
}

std::string drawn(const Bar& bar, int64_t most, int width, const TextStyle& style) {
  const auto eighths = [&](int64_t value) {
    const double share = static_cast<double>(value) / static_cast<double>(std::max<int64_t>(most, 1));
    return std::max<int64_t>(static_cast<int64_t>(share * width * 8 + 0.5), value > 0 ? 1 : 0);
  };
  const int64_t full = eighths(bar.value);
  const int64_t columns = (full + 7) / 8;
  const int64_t rest = std::max<int64_t>((eighths(bar.before) + 7) / 8 - columns, 0);
  std::string text = style.blocks ? blocks(full) : std::string(static_cast<size_t>(columns), '#');
  for (int64_t i = 0; i < rest; ++i) text += style.blocks ? "░" : ".";
  if (!style.colours || bar.colour == 0 || text.empty()) return text;
  return fmt::format("\033[38;5;{}m{}\033[0m", bar.colour, text);
}

// Near those of the pages (told apart by people who confuse red and green).
constexpr int kRoleColours[kRoleCount] = {67, 81, 250, 208, 29, 125, 185};
constexpr int kWorkspaceColour = 244;

}  // namespace

std::string bar_chart(const std::vector<std::string>& header, const std::vector<Bar>& bars,
                      const TextStyle& style) {
  Table table(header);
  int64_t most = 0;
  for (const Bar& bar : bars) {
    table.add_row(bar.cells);
    most = std::max({most, bar.value, bar.before});
  }
  std::vector<std::string> lines = table.lines();
  size_t label_width = 0;
  for (const std::string& line : lines) label_width = std::max(label_width, text_width(line));
  const int width = std::clamp(style.columns - static_cast<int>(label_width) - 3, kLeastWidth, kMostWidth);
  std::string out = lines.front() + "\n";
  for (size_t i = 0; i < bars.size(); ++i) {
    out += lines[i + 1] + std::string(label_width - text_width(lines[i + 1]) + 2, ' ') +
           drawn(bars[i], most, width, style) + "\n";
  }
  return out;
}

std::string peak_chart(const Moment& now, const Moment* before, const TextStyle& style) {
  std::vector<Bar> bars;
  const auto add = [&](std::string_view role, int64_t bytes, int64_t bytes_before, int colour) {
    if (bytes == 0 && bytes_before == 0) return;
    Bar bar{.cells = {std::string(role)}, .value = bytes, .before = bytes_before, .colour = colour};
    if (before != nullptr) bar.cells.push_back(format_bytes(bytes_before));
    bar.cells.push_back(format_bytes(bytes));
    bar.cells.push_back(share(bytes, now.bytes));
    bars.push_back(std::move(bar));
  };
  for (size_t role = 0; role < kRoleCount; ++role) {
    add(name(static_cast<Role>(role)), now.by_role[role],
        before != nullptr ? before->by_role[role] : 0, kRoleColours[role]);
  }
  add("workspace", now.workspace_bytes, before != nullptr ? before->workspace_bytes : 0, kWorkspaceColour);
  std::ranges::stable_sort(bars, std::greater(),
                           [](const Bar& bar) { return std::max(bar.value, bar.before); });
  std::vector<std::string> header = {"at the peak"};
  if (before != nullptr) header.insert(header.end(), {"keep all", "planned", "share"});
  else header.insert(header.end(), {"bytes", "share"});
  return bar_chart(header, bars, style);
}

}  // namespace remat
