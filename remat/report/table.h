// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace remat {

// Columns that a terminal needs for UTF-8 text.
size_t text_width(const std::string& text);

// Rows of text, columns lined up: the first column to the left, the others to the right. Lines end
// with their last character, no trailing blanks.
class Table {
 public:
  explicit Table(std::vector<std::string> header);
  void add_row(std::vector<std::string> cells);  // missing cells are empty
  std::string text() const;
  std::vector<std::string> lines() const;  // the same, the header first

 private:
  std::vector<std::vector<std::string>> rows_;  // the header first
};

}  // namespace remat
