# SPDX-License-Identifier: Apache-2.0

# `cmake --install`: the library's headers and archives, a package for find_package(remat), the tool.
# The result may be moved: nothing in it knows where it was installed, except for LibTorch, which
# stays where it is and is looked for there last.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(remat_libraries remat_remat remat_core)
set_target_properties(remat_remat PROPERTIES EXPORT_NAME remat)
set_target_properties(remat_core PROPERTIES EXPORT_NAME core)
if(REMAT_TORCH)
  list(APPEND remat_libraries remat_libtorch)
  set_target_properties(remat_libtorch PROPERTIES EXPORT_NAME libtorch)
endif()
set(remat_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/remat)
install(TARGETS ${remat_libraries} EXPORT remat-targets FILE_SET HEADERS)
install(EXPORT remat-targets NAMESPACE remat:: DESTINATION ${remat_package_dir})
# Apart: whoever links it needs the libraries that write text and JSON, others do not.
if(TARGET remat_report)
  set_target_properties(remat_report PROPERTIES EXPORT_NAME report)
  install(TARGETS remat_report EXPORT remat-report-targets FILE_SET HEADERS)
  install(EXPORT remat-report-targets NAMESPACE remat:: DESTINATION ${remat_package_dir})
  if(REMAT_UPLOT_DIR)
    install(FILES ${REMAT_UPLOT_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/licenses/remat RENAME uPlot.txt)
  endif()
endif()

# HiGHS comes along, in a folder of its own where it hides nobody else's, with its licence (MIT).
set(remat_own_libdir ${CMAKE_INSTALL_LIBDIR}/remat)
if(HIGHS_FOUND)
  get_filename_component(remat_highs_name ${HIGHS_LIBRARY} NAME)
  file(GLOB remat_highs_files ${HIGHS_LIBRARY}*)  # with the names that links give it
  install(PROGRAMS ${remat_highs_files} DESTINATION ${remat_own_libdir})
  if(HIGHS_LICENSE)
    install(FILES ${HIGHS_LICENSE} DESTINATION ${CMAKE_INSTALL_DATADIR}/licenses/remat RENAME HiGHS.txt)
  endif()
endif()
# So does the archive of liburing (MIT).
if(REMAT_TORCH AND Liburing_FOUND)
  get_filename_component(remat_liburing_name ${LIBURING_LIBRARY} NAME)
  install(FILES ${LIBURING_LIBRARY} DESTINATION ${remat_own_libdir})
  if(LIBURING_LICENSE)
    install(FILES ${LIBURING_LICENSE} DESTINATION ${CMAKE_INSTALL_DATADIR}/licenses/remat RENAME liburing.txt)
  endif()
endif()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/licenses/remat)

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/remat-config.cmake.in
  ${PROJECT_BINARY_DIR}/remat-config.cmake INSTALL_DESTINATION ${remat_package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/remat-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/remat-config.cmake
  ${PROJECT_BINARY_DIR}/remat-config-version.cmake DESTINATION ${remat_package_dir})

if(TARGET remat_cli)
  file(RELATIVE_PATH remat_from_bin /${CMAKE_INSTALL_BINDIR} /${remat_own_libdir})
  set(remat_rpath $ORIGIN/${remat_from_bin})
  if(REMAT_TORCH)
    list(APPEND remat_rpath ${TORCH_INSTALL_PREFIX}/lib)
  endif()
  set_target_properties(remat_cli PROPERTIES INSTALL_RPATH "${remat_rpath}")
  install(TARGETS remat_cli)
endif()
