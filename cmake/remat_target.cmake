# SPDX-License-Identifier: Apache-2.0

# What every target of ours has in common, and nothing that leaks into a user's build.
function(remat_target target)
  remat_flags(${target})
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
endfunction()

# The same without the include root, for the rooms of the core, each of which has its own.
function(remat_flags target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow)
  # g++ 12 sees an overlap in every  "literal" + std::string  that it inlines (GCC bug 105651).
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(${target} PRIVATE -Wno-restrict)
  endif()
  set_target_properties(${target} PROPERTIES
    POSITION_INDEPENDENT_CODE ON CXX_EXTENSIONS OFF
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  if(REMAT_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(REMAT_SANITIZE)
    target_compile_options(${target} PRIVATE
      -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(${target} PUBLIC -fsanitize=address,undefined)
  endif()
  if(REMAT_SANITIZE_THREAD)
    target_compile_options(${target} PRIVATE -fsanitize=thread -fno-omit-frame-pointer)
    target_link_options(${target} PUBLIC -fsanitize=thread)
  endif()
endfunction()

# For what spends its time in the core or in LibTorch: hardly optimised, with sanitizers not at all, so that it
# compiles sooner. A target that shares its compiled headers must be such a target too: g++ 12 crashes on those of a
# lower level.
function(remat_light target)
  if(REMAT_SANITIZE OR REMAT_SANITIZE_THREAD)
    target_compile_options(${target} PRIVATE -O0)
  else()
    target_compile_options(${target} PRIVATE -O1)
  endif()
endfunction()

# The same for what includes LibTorch's headers, of which every unit instantiates a lot. Pointers that are null or lead
# nowhere are AddressSanitizer's to find: to check each use of one takes a third of the time to compile.
function(remat_light_under_sanitizers target)
  if(REMAT_SANITIZE OR REMAT_SANITIZE_THREAD)
    target_compile_options(${target} PRIVATE -O0)
  endif()
  if(REMAT_SANITIZE)
    target_compile_options(${target} PRIVATE -fno-sanitize=null,alignment,object-size)
  endif()
endfunction()
