// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace remat {

// Rows of text, columns lined up: the first column to the left, the others to the right. Lines end
// with their last character, no trailing blanks.
class Table {
 public:
  explicit Table(std::vector<std::string> header);
  void add_row(std::vector<std::string> cells);  // missing cells are empty
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;  // the header first
};

}  // namespace remat
