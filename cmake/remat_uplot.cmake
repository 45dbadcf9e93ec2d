# SPDX-License-Identifier: Apache-2.0

# Finds uPlot, which draws the charts of the pages, and sets REMAT_UPLOT_DIR to its package. npm fetches
# the version that remat/report/page/package-lock.json pins, checks its digest, and leaves it in the build
# folder; it is not in the repository. Where it cannot be had, everything else is built all the same, and
# the pages say in the place of each chart why it is not there.
set(REMAT_UPLOT_DIR "" CACHE PATH "The package uplot, unpacked, where npm should not fetch it")
set(remat_uplot_version 1.6.32)

function(remat_fetch_uplot)
  set(lock ${PROJECT_SOURCE_DIR}/remat/report/page/package-lock.json)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${lock})
  set(folder ${PROJECT_BINARY_DIR}/page_packages)
  set(package ${folder}/node_modules/uplot)
  file(SHA256 ${lock} wanted)
  set(fetched "")
  if(EXISTS ${folder}/fetched)
    file(READ ${folder}/fetched fetched)
  endif()
  if(NOT fetched STREQUAL wanted OR NOT EXISTS ${package}/dist/uPlot.iife.min.js)
    find_program(REMAT_NPM npm)
    if(NOT REMAT_NPM)
      set(remat_uplot_fault "npm was not found" PARENT_SCOPE)
      return()
    endif()
    file(COPY ${PROJECT_SOURCE_DIR}/remat/report/page/package.json ${lock} DESTINATION ${folder})
    execute_process(
      COMMAND ${REMAT_NPM} ci --ignore-scripts --no-audit --no-fund --loglevel=error
      WORKING_DIRECTORY ${folder} RESULT_VARIABLE failed OUTPUT_QUIET ERROR_VARIABLE said)
    if(failed)
      string(REGEX REPLACE "\n.*" "" said "${said}")
      set(remat_uplot_fault "npm could not fetch uplot (${said})" PARENT_SCOPE)
      return()
    endif()
    file(WRITE ${folder}/fetched ${wanted})
  endif()
  set(REMAT_UPLOT_DIR ${package} PARENT_SCOPE)
endfunction()

if(NOT REMAT_UPLOT_DIR)
  remat_fetch_uplot()
elseif(NOT EXISTS ${REMAT_UPLOT_DIR}/dist/uPlot.iife.min.js)
  message(FATAL_ERROR "REMAT_UPLOT_DIR is ${REMAT_UPLOT_DIR}; expected the folder of the npm package uplot "
    "${remat_uplot_version}, with dist/uPlot.iife.min.js in it")
endif()
if(NOT REMAT_UPLOT_DIR)
  message(WARNING "The pages are built without charts: ${remat_uplot_fault}.\n"
    "Install npm, or unpack what  npm pack uplot@${remat_uplot_version}  fetches and give its folder as "
    "REMAT_UPLOT_DIR.")
endif()
