# SPDX-License-Identifier: Apache-2.0

# liburing (Debian: liburing-dev), through which io_uring is used. The archive and not the shared library, so that
# whatever is built, the Python package above all, needs no library of the system. Defines liburing::liburing.
find_path(LIBURING_INCLUDE_DIR liburing.h)
find_library(LIBURING_LIBRARY NAMES liburing.a)
# Goes with the library where that is copied to.
find_file(LIBURING_LICENSE copyright HINTS /usr/share/doc/liburing-dev NO_DEFAULT_PATH)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Liburing REQUIRED_VARS LIBURING_LIBRARY LIBURING_INCLUDE_DIR)

if(Liburing_FOUND AND NOT TARGET liburing::liburing)
  add_library(liburing::liburing STATIC IMPORTED GLOBAL)
  set_target_properties(liburing::liburing PROPERTIES
    IMPORTED_LOCATION "${LIBURING_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${LIBURING_INCLUDE_DIR}")
endif()
mark_as_advanced(LIBURING_INCLUDE_DIR LIBURING_LIBRARY LIBURING_LICENSE)
