// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "remat/core/error.h"
#include "remat/core/plan_file.h"
#include "remat/core/verify.h"
#include "remat/core/verify_addresses.h"

namespace {

// Any bytes are a plan or an Error. A plan prints as a text that is read as the same plan, and what
// was accepted is right.
void read(const std::string& bytes) {
  using namespace remat;
  PlanFile file;
  try {
    file = parse_plan_file(bytes);
  } catch (const Error&) {
    return;
  }
  const std::string text = print_plan_file(file);
  if (print_plan_file(parse_plan_file(text)) != text) std::abort();
  for (const SavedCourse& course : file.courses) {
    if (verify(course.graph, course.schedule, course.plan.peak_bytes)) std::abort();
    if (course.reserved_bytes() > course.budget_bytes) std::abort();
    if (!fault_in_addresses(course.graph, course.schedule, *course.plan.placement).empty()) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  read(bytes);
  read(remat::with_checksum(bytes));  // else nothing would be seen behind the checksum
  return 0;
}
