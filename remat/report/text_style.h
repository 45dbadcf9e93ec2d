// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace remat {

// What the place can show that a text is written to. The default is any file.
struct TextStyle {
  bool colours = false;  // ANSI escapes
  bool blocks = false;   // Unicode's block elements; '#' and '.' otherwise
  int columns = 80;
};

}  // namespace remat
