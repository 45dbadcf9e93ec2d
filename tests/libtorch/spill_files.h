// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace remat::testing {

// Cuts the files to nothing that this process has values of steps in: what an administrator, or a file system
// that fails, does to them. Returns how many there are.
int cut_spill_files();

}  // namespace remat::testing
