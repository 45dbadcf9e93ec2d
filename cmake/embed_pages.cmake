# SPDX-License-Identifier: Apache-2.0

# Writes a C++ source with the contents of files as strings.
#   cmake -DOUT=page_files.cc -DSCRIPTS=a.js;b.js -DSTYLES=a.css -DUPLOT=folder -P embed_pages.cmake
# Without UPLOT, the strings that hold it are empty.
function(content_of result)
  set(all "")
  foreach(file ${ARGN})
    file(READ ${file} content)
    # Our own files say their licence once, in the page.
    string(REGEX REPLACE "^(//|/\\*) SPDX[^\n]*\n" "" content "${content}")
    string(APPEND all "${content}")
  endforeach()
  set(${result} "R\"remat_file(${all})remat_file\"" PARENT_SCOPE)
endfunction()

set(uplot_script "")
set(uplot_style "")
set(uplot_licence "")
if(UPLOT)
  set(uplot_script ${UPLOT}/dist/uPlot.iife.min.js)
  set(uplot_style ${UPLOT}/dist/uPlot.min.css)
  set(uplot_licence ${UPLOT}/LICENSE)
endif()
content_of(script ${SCRIPTS})
content_of(style ${STYLES})
content_of(chart_script ${uplot_script})
content_of(chart_style ${uplot_style})
content_of(chart_licence ${uplot_licence})
file(WRITE ${OUT} "#include \"remat/report/page_files.h\"

namespace remat {

const char* const kPageScript = ${script};
const char* const kPageStyle = ${style};
const char* const kChartScript = ${chart_script};
const char* const kChartStyle = ${chart_style};
const char* const kChartLicence = ${chart_licence};

}  // namespace remat
")
