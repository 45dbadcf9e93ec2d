# SPDX-License-Identifier: Apache-2.0

# The C++ libraries that the system must have, all looked for at once, so that whoever lacks several
# is told once. `make` installs them itself; `pip install .` may not, and includes this file first.
set(remat_missing "")
foreach(library fmt=libfmt-dev nlohmann_json=nlohmann-json3-dev CLI11=libcli11-dev)
  string(REPLACE "=" ";" library ${library})
  list(GET library 0 name)
  list(GET library 1 package)
  find_package(${name} QUIET)
  if(NOT ${name}_FOUND)
    string(APPEND remat_missing " ${package}")
  endif()
endforeach()
if(remat_missing)
  message(FATAL_ERROR
    "remat needs C++ libraries that are not installed (Debian names):${remat_missing}\n"
    "  sudo apt-get install${remat_missing}\n"
    "then try again.")
endif()
