# SPDX-License-Identifier: Apache-2.0
# Includes one header after the other with the include roots of a room: those in SEES must compile,
# those in NOT must not be found.
list(TRANSFORM ROOTS PREPEND -I)
file(MAKE_DIRECTORY ${WORK})

macro(include_header header)
  file(WRITE ${WORK}/includes.cc "#include \"remat/core/${header}\"\n")
  execute_process(COMMAND ${COMPILER} -std=c++20 -fsyntax-only ${ROOTS} ${WORK}/includes.cc
    RESULT_VARIABLE failed ERROR_VARIABLE message)
endmacro()

foreach(header ${SEES})
  include_header(${header})
  if(failed)
    message(SEND_ERROR "${header} should compile here:\n${message}")
  endif()
endforeach()
foreach(header ${NOT})
  include_header(${header})
  if(NOT failed OR NOT message MATCHES "remat/core/${header}.*(No such file|not found)")
    message(SEND_ERROR "${header} is above this room and should not be found here:\n${message}")
  endif()
endforeach()
