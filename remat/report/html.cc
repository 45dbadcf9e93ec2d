// SPDX-License-Identifier: Apache-2.0
#include "remat/report/html.h"

#include <fmt/format.h>

#include <algorithm>

#include "remat/core/units.h"

namespace remat {
namespace {

// From below: what lives through the step first. Colours that are told apart without red and green.
struct Layer {
  const char* name;
  const char* colour;
  int64_t (*bytes)(const Moment&);
};
template <Role role>
int64_t of_role(const Moment& moment) {
  return moment.by_role[static_cast<size_t>(role)];
}
constexpr Layer kLayers[] = {
    {"param", "#4477aa", of_role<Role::param>},
    {"buffer", "#66ccee", of_role<Role::buffer>},
    {"input", "#bbbbbb", of_role<Role::input>},
    {"optimizer_state", "#aa3377", of_role<Role::optimizer_state>},
    {"activation", "#ee9944", of_role<Role::activation>},
    {"gradient", "#228833", of_role<Role::gradient>},
    {"temporary", "#ccbb44", of_role<Role::temporary>},
    {"workspace", "#555555", [](const Moment& moment) { return moment.workspace_bytes; }},
};

constexpr double kWidth = 1000;
constexpr double kHeight = 320;
constexpr double kMargin = 24;      // above for the label of the budget, below for the key
constexpr double kKeyWidth = 125;
constexpr size_t kMostColumns = 500;  // more than one can tell apart

// So many moments that each has a column, the largest of those that share one.
std::vector<Moment> columns_of(const std::vector<Moment>& timeline) {
  if (timeline.size() <= kMostColumns) {
    return timeline;
  }
  std::vector<Moment> columns;
  for (size_t i = 0; i < kMostColumns; ++i) {
    const auto begin = timeline.begin() + static_cast<ptrdiff_t>(i * timeline.size() / kMostColumns);
    const auto end = timeline.begin() + static_cast<ptrdiff_t>((i + 1) * timeline.size() / kMostColumns);
    columns.push_back(*std::ranges::max_element(begin, end, {}, &Moment::bytes));
  }
  return columns;
}

}  // namespace

std::string html_escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

const char* html_style() {
  return "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;"
         "color:#222;background:#fff}"
         "table{border-collapse:collapse;margin:1rem 0}"
         "td,th{padding:.15rem .8rem;text-align:right;border-bottom:1px solid #ddd}"
         "td:first-child,th:first-child{text-align:left;font-family:monospace}"
         "svg{width:100%;height:auto;background:#fafafa}";
}

std::string timeline_svg(const std::vector<Moment>& timeline, const TimelineAxes& axes) {
  const std::vector<Moment> columns = columns_of(timeline);
  const size_t count = columns.size();
  std::string svg = fmt::format(
      "<svg viewBox='0 {} {} {}' role='img' font-family='sans-serif' "
      "font-size='14'><title>Bytes over the step</title>",
      -kMargin, kWidth, kHeight + 2 * kMargin);
  const auto x = [&](size_t i) {
    return kWidth * static_cast<double>(i) / static_cast<double>(std::max<size_t>(count, 1));
  };
  const auto y = [&](int64_t bytes) {
    return kHeight *
           (1 - static_cast<double>(bytes) / static_cast<double>(std::max<int64_t>(axes.top_bytes, 1)));
  };
  std::vector<int64_t> below(count, 0);
  double key_x = 0;
  for (const Layer& layer : kLayers) {
    std::vector<int64_t> above = below;
    for (size_t i = 0; i < count; ++i) above[i] += layer.bytes(columns[i]);
    if (above == below) continue;
    svg += fmt::format("<path fill='{}' d='M0,{:.1f}", layer.colour, y(above.front()));
    for (size_t i = 1; i < count; ++i) {
      if (above[i] != above[i - 1]) svg += fmt::format("H{:.1f}V{:.1f}", x(i), y(above[i]));
    }
    svg += fmt::format("H{}V{:.1f}", kWidth, y(below.back()));
    for (size_t i = count - 1; i > 0; --i) {
      if (below[i] != below[i - 1]) svg += fmt::format("H{:.1f}V{:.1f}", x(i), y(below[i - 1]));
    }
    svg += fmt::format("H0Z'/><rect x='{0}' y='{1}' width='12' height='12' fill='{2}'/>"
                       "<text x='{3}' y='{4}' font-size='12' fill='#222'>{5}</text>",
                       key_x, kHeight + 6, layer.colour, key_x + 16, kHeight + 17, layer.name);
    key_x += kKeyWidth;
    below = std::move(above);
  }
  const auto line_at = [&](int64_t bytes, const char* what) {
    svg += fmt::format(
        "<line x1='0' x2='{0}' y1='{1:.1f}' y2='{1:.1f}' stroke='#222' stroke-dasharray='8 5'/>"
        "<text x='8' y='{2:.1f}' fill='#222'>{3} {4}</text>",
        kWidth, y(bytes), y(bytes) - 6, what, format_bytes(bytes));
  };
  line_at(axes.budget_bytes.value_or(axes.top_bytes), axes.budget_bytes ? "budget" : "peak");
  return svg + "</svg>";
}

}  // namespace remat
