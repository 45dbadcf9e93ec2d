// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace remat {

// The files in remat/report/page and uPlot, as they were when the library was built
// (cmake/embed_pages.cmake). Those of uPlot are empty where it could not be had.
extern const char* const kPageScript;
extern const char* const kPageStyle;
extern const char* const kChartScript;
extern const char* const kChartStyle;
extern const char* const kChartLicence;

}  // namespace remat
