// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "remat/core/fit.h"

namespace remat {

// The largest size of a model that trains inside a budget, beside what plain LibTorch can take.
struct FitReport {
  std::string model = {};      // "resnet50, image 224, f32": without the size that grows
  std::string along = {};      // that size: "batch", "sequence" or "image"
  std::string per = "sample";  // what times are divided by
  // So many of them are in a step for each unit of the size; with `fixed`, whatever the size.
  int64_t count = 1;
  bool fixed = false;
  int64_t budget_bytes = 0;
  double seconds = 0;  // that the search took
  Fit fit = {};

  // Time of a step divided by what is in it.
  int64_t ns_per_item(const FittedSize& fitted) const;
};

std::string fit_text(const FitReport& report);
nlohmann::json fit_json(const FitReport& report);

// Where not even the smallest size fits: "no plan fits ...: the least known peak is ...".
std::string nothing_fits_message(const FitReport& report);

}  // namespace remat
