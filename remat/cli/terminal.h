// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "remat/report/text_style.h"

namespace remat {

// What standard output (1) or standard error (2) shows: colours on a terminal only, unless NO_COLOR is set
// or the terminal is "dumb"; block elements where the locale is UTF-8; as wide as the terminal is.
TextStyle style_of(int descriptor);

}  // namespace remat
