// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

// The parts of the extension module remat._remat, one source each.
namespace remat::python {

void bind_verbs(pybind11::module_& module);  // graphs, plans, schedules: no tensors
void bind_step(pybind11::module_& module);   // training steps

}  // namespace remat::python
