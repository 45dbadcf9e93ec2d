// SPDX-License-Identifier: Apache-2.0
#include "remat/core/text_lines.h"

#include <algorithm>
#include <charconv>

namespace remat::detail {

std::string excerpt(std::string_view text) {
  constexpr size_t kLongest = 60;
  std::string shown = "'";
  for (const char c : text.substr(0, kLongest)) shown += c > 0x1f && c < 0x7f ? c : '?';
  return shown + (text.size() > kLongest ? "...'" : "'");
}

std::vector<std::string_view> words_of(std::string_view line) {
  constexpr std::string_view kBlanks = " \t\r";
  std::vector<std::string_view> words;
  size_t start = line.find_first_not_of(kBlanks);
  while (start != std::string_view::npos) {
    const size_t end = line.find_first_of(kBlanks, start);
    words.push_back(line.substr(start, end - start));
    start = line.find_first_not_of(kBlanks, end);
  }
  return words;
}

std::vector<std::string_view> list_of(std::string_view text, std::string_view key) {
  std::vector<std::string_view> items;
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find(',', start), text.size());
    if (end == start) {
      throw Error(concat(key, "= has an empty element in ", excerpt(text),
                         "; expected names separated by single commas"));
    }
    items.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return items;
}

std::pair<std::string_view, std::string_view> split_at(std::string_view text, char mark,
                                                       std::string_view expected) {
  const size_t at = text.find(mark);
  if (at == std::string_view::npos || text.find(mark, at + 1) != std::string_view::npos) {
    throw Error(concat("found ", excerpt(text), "; expected ", expected));
  }
  return {text.substr(0, at), text.substr(at + 1)};
}

int64_t number_of(std::string_view text, std::string_view what) {
  int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, number);
  if (status == std::errc::result_out_of_range) {
    throw Error(concat(what, " ", excerpt(text), " does not fit into 64 bits; expected less"));
  }
  if (status != std::errc() || stop != end || text.front() == '-') {
    throw Error(concat(what, " is ", excerpt(text), "; expected a whole number, zero or more"));
  }
  return number;
}

void throw_at_line(std::string_view verb, int64_t line, std::string_view message) {
  throw Error(concat("[", verb, "] line ", line, ": ", message));
}

void check_header(const std::vector<std::string_view>& words, std::string_view header) {
  if (words == words_of(header)) return;
  std::string found(words.front());
  if (words.size() > 1) found += " " + std::string(words[1].substr(0, 60));
  throw Error(concat("found ", excerpt(found), "; expected the header '", header, "'"));
}

}  // namespace remat::detail
