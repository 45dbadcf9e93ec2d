# SPDX-License-Identifier: Apache-2.0

# Finds LibTorch and gives it one name: remat::torch. It is looked for in CMAKE_PREFIX_PATH and
# Torch_DIR, then in the torch wheel of a virtual environment `.venv` in the source tree.
if(NOT DEFINED REMAT_TORCH OR REMAT_TORCH)
  # The folder's name holds Python's version; asking Python instead would load all of torch.
  file(GLOB remat_wheel_torch ${PROJECT_SOURCE_DIR}/.venv/lib/python3.*/site-packages/torch/share/cmake)
  # A project that adds this one links what it finds: its targets must be seen there too.
  set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)
  find_package(Torch QUIET HINTS ${remat_wheel_torch})
  unset(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL)
endif()
option(REMAT_TORCH "Build what needs LibTorch" ${Torch_FOUND})

if(REMAT_TORCH)
  if(NOT Torch_FOUND)
    message(FATAL_ERROR
      "REMAT_TORCH is ON, but LibTorch was not found: set CMAKE_PREFIX_PATH to what\n"
      "  python -c 'import torch; print(torch.utils.cmake_prefix_path)'\n"
      "prints, or put a virtual environment with the torch wheel into .venv")
  endif()
  add_library(remat::torch INTERFACE IMPORTED GLOBAL)
  target_link_libraries(remat::torch INTERFACE ${TORCH_LIBRARIES})
endif()

# An executable that includes <torch/torch.h>: it uses the compiled copy of that header that the
# models have. gcc accepts it only with the same code model, -fPIC and not an executable's -fPIE.
function(remat_torch_executable target)
  remat_target(${target})
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIC)
  target_precompile_headers(${target} REUSE_FROM remat_models)
  # g++ 12 with sanitizers takes the empty std::optional in ATen's defaults for an uninitialised one.
  if(REMAT_SANITIZE OR REMAT_SANITIZE_THREAD)
    target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized)
  endif()
endfunction()
