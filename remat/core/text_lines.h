// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/error.h"

// What the graph and the schedule parser share: lines of words, words of key=value, and errors that
// carry the line number. Internal to core.
namespace remat::detail {

// Shortened and made printable: what a file holds may be megabytes of binary junk.
std::string excerpt(std::string_view text);

// Words between blanks and tabs; a carriage return at the end is dropped.
std::vector<std::string_view> words_of(std::string_view line);

// "a,b" -> {a, b}. Throws Error on an empty element.
std::vector<std::string_view> list_of(std::string_view text, std::string_view key);

// "d<a" at '<' -> {d, a}. Throws Error unless the mark stands there exactly once.
std::pair<std::string_view, std::string_view> split_at(std::string_view text, char mark,
                                                       std::string_view expected);

// A whole non-negative number. Throws Error on anything else, overflow included.
int64_t number_of(std::string_view text, std::string_view what);

[[noreturn]] void throw_at_line(std::string_view verb, int64_t line, std::string_view message);
void check_header(const std::vector<std::string_view>& words, std::string_view header);

// Calls `item(words)` for each line that holds something, after checking that the first one is
// exactly `header`. An Error thrown by `item` comes out as "[verb] line N: ...".
template <typename Item>
void for_each_line(std::string_view text, std::string_view verb, std::string_view header,
                   const Item& item) {
  int64_t line_number = 0;
  bool header_seen = false;
  while (!text.empty()) {
    ++line_number;
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    try {
      const std::vector<std::string_view> words = words_of(line);
      if (words.empty() || words.front().front() == '#') continue;
      if (header_seen) {
        item(words);
      } else {
        check_header(words, header);
        header_seen = true;
      }
    } catch (const Error& error) {
      throw_at_line(verb, line_number, error.what());
    }
  }
  if (!header_seen) {
    throw_at_line(verb, line_number + 1,
                  concat("nothing found; expected the header '", header, "'"));
  }
}

}  // namespace remat::detail
