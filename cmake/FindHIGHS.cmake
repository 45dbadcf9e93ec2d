# SPDX-License-Identifier: Apache-2.0

# HiGHS from the `highsbox` wheel: where HIGHS_ROOT says, in a site-packages that CMAKE_PREFIX_PATH names
# (pip's builds do), or in the source tree's .venv. Defines highs::highs. The wheel's own config looks
# for the library in lib64/, where it is not.
set(HIGHS_ROOT "" CACHE PATH "A highs_dist directory: the one with include/highs and lib/libhighs.so")
file(GLOB highs_in_venv "${PROJECT_SOURCE_DIR}/.venv/lib/python*/site-packages/highsbox/highs_dist")
list(TRANSFORM CMAKE_PREFIX_PATH APPEND /highsbox/highs_dist OUTPUT_VARIABLE highs_in_prefixes)

find_path(HIGHS_INCLUDE_DIR interfaces/highs_c_api.h
  HINTS ${HIGHS_ROOT} ${highs_in_prefixes} ${highs_in_venv} PATH_SUFFIXES include/highs)
find_library(HIGHS_LIBRARY highs HINTS ${HIGHS_ROOT} ${highs_in_prefixes} ${highs_in_venv} PATH_SUFFIXES lib)
# Goes with the library where that is copied to.
find_file(HIGHS_LICENSE LICENSE.txt HINTS ${HIGHS_ROOT} ${highs_in_prefixes} ${highs_in_venv}
  PATH_SUFFIXES share/doc/HIGHS NO_DEFAULT_PATH)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(HIGHS REQUIRED_VARS HIGHS_LIBRARY HIGHS_INCLUDE_DIR)

if(HIGHS_FOUND AND NOT TARGET highs::highs)
  add_library(highs::highs SHARED IMPORTED GLOBAL)
  set_target_properties(highs::highs PROPERTIES
    IMPORTED_LOCATION "${HIGHS_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${HIGHS_INCLUDE_DIR}")
endif()
mark_as_advanced(HIGHS_INCLUDE_DIR HIGHS_LIBRARY HIGHS_LICENSE)
