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

# <torch/torch.h> costs half a minute per translation unit: models, tests, benchmarks and examples share one compiled
# copy. Nothing is in this target but that copy, so that whoever needs it need not wait for the models.
if(REMAT_TORCH AND (REMAT_TOOL OR REMAT_TESTS OR REMAT_BENCH))
  file(WRITE ${PROJECT_BINARY_DIR}/torch_headers.cc "")
  add_library(remat_torch_headers OBJECT ${PROJECT_BINARY_DIR}/torch_headers.cc)
  remat_target(remat_torch_headers)
  remat_light(remat_torch_headers)
  remat_light_under_sanitizers(remat_torch_headers)
  target_link_libraries(remat_torch_headers PUBLIC remat::torch)
  target_precompile_headers(remat_torch_headers PRIVATE <torch/torch.h>)
endif()

# For a target that includes <torch/torch.h>. gcc accepts the compiled copy only with the same code model, -fPIC and
# not an executable's -fPIE.
function(remat_with_torch_headers target)
  remat_target(${target})
  remat_light(${target})
  remat_light_under_sanitizers(${target})
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIC)
  target_link_libraries(${target} PUBLIC remat::torch)
  target_precompile_headers(${target} REUSE_FROM remat_torch_headers)
  # g++ 12 with sanitizers takes the empty std::optional in ATen's defaults for an uninitialised one.
  if(REMAT_SANITIZE OR REMAT_SANITIZE_THREAD)
    target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized)
  endif()
endfunction()
