// SPDX-License-Identifier: Apache-2.0
#include "remat/cli/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "remat/cli/terminal.h"
#include "remat/report/table.h"

namespace remat {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kBarWidth = 30;

std::string bar(double done, const TextStyle& style) {
  const int full = static_cast<int>(std::lround(kBarWidth * done));
  std::string text = style.colours ? "\033[38;5;67m" : "";
  for (int i = 0; i < full; ++i) text += style.blocks ? "━" : "=";
  if (style.colours) text += "\033[38;5;240m";
  for (int i = full; i < kBarWidth; ++i) text += style.blocks ? "─" : "-";
  return style.colours ? text + "\033[0m" : text;
}

// Cut at a character, not within one: a line that wraps cannot be taken back.
std::string cut(const std::string& line, int columns) {
  const size_t most = static_cast<size_t>(std::max(columns, 0));
  std::string out;
  size_t used = 0;
  for (const char c : line) {
    const bool begins = (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    if (begins && used == most) break;
    used += begins ? 1 : 0;
    out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  }
  return out;
}

}  // namespace

Progress::Progress()
    : next_(Clock::now() + std::chrono::seconds(1)),
      terminal_(isatty(STDERR_FILENO) != 0),
      style_(style_of(STDERR_FILENO)) {}

Progress::~Progress() {
  if (written_) std::cerr << "\r\033[K" << std::flush;
}

bool Progress::wanted() { return terminal_ && Clock::now() >= next_; }

void Progress::show(const std::string& line) { write(cut(line, style_.columns - 1)); }

void Progress::show(const std::string& line, double done, const std::string& more) {
  if (!terminal_) return;
  done = std::clamp(done, 0.0, 1.0);
  const std::string percent = std::to_string(std::lround(100 * done)) + " %";
  const std::string before = cut(line, style_.columns - 1) + "  ";
  const std::string after = "  " + percent + (more.empty() ? "" : "  " + more);
  const int left = style_.columns - 1 - static_cast<int>(text_width(before)) - kBarWidth;
  if (left < static_cast<int>(percent.size()) + 2) return show(line + "  " + percent);
  write(before + bar(done, style_) + cut(after, left));
}

void Progress::write(const std::string& line) {
  if (!terminal_) return;
  next_ = Clock::now() + std::chrono::milliseconds(100);
  written_ = true;
  std::cerr << "\r\033[K" << line << std::flush;
}

}  // namespace remat
