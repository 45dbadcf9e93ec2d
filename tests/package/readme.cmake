# SPDX-License-Identifier: Apache-2.0
# The README's first block of C++ must be part of the program that it names, line for line, wherever
# the program indents it.
file(READ ${README} readme)
file(READ ${PROGRAM} program)
string(FIND "${readme}" "```cpp\n" start)
string(SUBSTRING "${readme}" ${start} -1 block)
string(REPLACE "```cpp\n" "" block "${block}")
string(FIND "${block}" "```" end)
string(SUBSTRING "${block}" 0 ${end} block)
foreach(text block program)
  string(REGEX REPLACE "\n +" "\n" ${text} "${${text}}")
endforeach()
string(FIND "${program}" "${block}" found)
if(start EQUAL -1 OR found EQUAL -1)
  message(FATAL_ERROR "the program in ${README} is not in ${PROGRAM}:\n${block}")
endif()
