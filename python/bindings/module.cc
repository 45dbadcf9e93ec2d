// SPDX-License-Identifier: Apache-2.0
// The extension module of the Python package. What users see is in python/remat/*.py.
#include "python/bindings/bindings.h"

PYBIND11_MODULE(_remat, module) {
  module.doc() = "The compiled part of remat; use the package remat.";
  module.attr("__version__") = REMAT_VERSION;
  module.attr("torch_version") = REMAT_TORCH_VERSION;  // that it was compiled for
  remat::python::bind_verbs(module);
  remat::python::bind_step(module);
}
