# SPDX-License-Identifier: Apache-2.0
# Installs a build into a folder, moves that somewhere else, and runs the tool there: the result
# must not depend on where it was installed.
file(REMOVE_RECURSE ${WORK}/installed ${PREFIX})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/installed
  OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
file(RENAME ${WORK}/installed ${PREFIX})
execute_process(COMMAND ${PREFIX}/bin/remat plan ${GRAPH} --budget 100% --strategy keep_all
  OUTPUT_VARIABLE table COMMAND_ERROR_IS_FATAL ANY)
if(NOT table MATCHES "keep_all")
  message(FATAL_ERROR "the installed tool printed no plan:\n${table}")
endif()
