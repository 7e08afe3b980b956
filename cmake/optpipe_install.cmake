include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

# An absolute folder, as seen from the prefix: what CMake exports and what pkg-config reads is below the prefix, which can
# be moved.
foreach(folder CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
    if(IS_ABSOLUTE ${${folder}})
        file(RELATIVE_PATH ${folder} ${CMAKE_INSTALL_PREFIX} ${${folder}})
    endif()
endforeach()

get_property(layers DIRECTORY ${PROJECT_SOURCE_DIR} PROPERTY OPTPIPE_LAYERS)
set(package_dir ${CMAKE_INSTALL_DATADIR}/cmake/optpipe)
set(packages_of_layers "")
foreach(layer IN LISTS layers)
    install(TARGETS optpipe_${layer} EXPORT optpipe_targets FILE_SET HEADERS COMPONENT optpipe_development)
    get_target_property(packages optpipe_${layer} OPTPIPE_PACKAGES)
    string(APPEND packages_of_layers "set(_optpipe_packages_${layer} ${packages})\n")
endforeach()
# What find_package(optpipe) stands for: optpipe::optpipe, and all that it links.
get_target_property(default_layers optpipe_optpipe INTERFACE_LINK_LIBRARIES)
list(TRANSFORM default_layers REPLACE "^optpipe::" "")
list(APPEND default_layers optpipe)

install(
    EXPORT optpipe_targets
    FILE optpipeTargets.cmake
    NAMESPACE optpipe::
    DESTINATION ${package_dir}
    COMPONENT optpipe_development
)
set(installs_c FALSE)
set(c_header "")
if(TARGET optpipe_c)
    set(installs_c ${OPTPIPE_BUILD_C})
    set(c_header FILE_SET HEADERS COMPONENT optpipe_development)
endif()
if(OPTPIPE_BUILD_COMPILED)
    install(
        TARGETS optpipe_compiled EXPORT optpipe_targets ARCHIVE COMPONENT optpipe_development ${c_header}
    )
    get_target_property(packages optpipe_optpipe OPTPIPE_PACKAGES)
    list(APPEND layers compiled)
    string(APPEND packages_of_layers "set(_optpipe_packages_compiled ${packages})\n")
endif()
if(installs_c)
    install(
        TARGETS optpipe_c EXPORT optpipe_targets
        LIBRARY COMPONENT optpipe_development
        RUNTIME COMPONENT optpipe_development
        ARCHIVE COMPONENT optpipe_development
        ${c_header}
    )
    list(APPEND layers c) # it needs no package
endif()
include(${CMAKE_CURRENT_LIST_DIR}/optpipe_pkgconfig.cmake)
configure_package_config_file(
    ${PROJECT_SOURCE_DIR}/cmake/optpipeConfig.cmake.in
    ${PROJECT_BINARY_DIR}/optpipeConfig.cmake
    INSTALL_DESTINATION ${package_dir}
    NO_SET_AND_CHECK_MACRO
)
write_basic_package_version_file(
    ${PROJECT_BINARY_DIR}/optpipeConfigVersion.cmake COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT
)
install(
    FILES ${PROJECT_BINARY_DIR}/optpipeConfig.cmake ${PROJECT_BINARY_DIR}/optpipeConfigVersion.cmake
          ${PROJECT_SOURCE_DIR}/cmake/FindNCCL.cmake ${PROJECT_SOURCE_DIR}/cmake/optpipe_packages.cmake
    DESTINATION ${package_dir}
    COMPONENT optpipe_development
)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/schemas DESTINATION ${CMAKE_INSTALL_DATADIR}/optpipe COMPONENT optpipe_development)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT optpipe_development)
