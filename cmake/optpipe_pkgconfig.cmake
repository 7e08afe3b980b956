# optpipe.pc, optpipe-compiled.pc and optpipe-c.pc: what optpipe::optpipe, optpipe::compiled and optpipe::c say, for builds
# without CMake.
set(requires "")
set(definitions "")
if(OPTPIPE_HAS_MILP)
    string(APPEND requires " eigen3 tbb")
    string(APPEND definitions " -DOPTPIPE_HAS_MILP=1")
    if(TARGET ZLIB::ZLIB)
        string(APPEND requires " zlib")
        string(APPEND definitions " -DOPTPIPE_HAS_ZLIB=1")
    endif()
endif()
if(TARGET nlohmann_json::nlohmann_json)
    string(APPEND requires " nlohmann_json")
    string(APPEND definitions " -DOPTPIPE_HAS_JSON=1")
endif()

# pkg_config_file(<name> <folder of the file> <definitions> <libraries>): says where things are from where it is itself.
function(pkg_config_file name folder definitions libraries)
    cmake_path(ABSOLUTE_PATH folder BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX} OUTPUT_VARIABLE here)
    file(RELATIVE_PATH up ${here} ${CMAKE_INSTALL_PREFIX})
    file(
        CONFIGURE
        OUTPUT ${PROJECT_BINARY_DIR}/${name}.pc
        CONTENT "prefix=\${pcfiledir}/${up}
includedir=\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}
libdir=\${prefix}/${CMAKE_INSTALL_LIBDIR}

Name: ${name}
Description: ${PROJECT_DESCRIPTION}
Version: ${PROJECT_VERSION}
Requires:${requires}
Cflags: -I\${includedir}${definitions} -pthread
Libs:${libraries} -pthread
"
        @ONLY
    )
    install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${folder} COMPONENT optpipe_development)
endfunction()
pkg_config_file(optpipe ${CMAKE_INSTALL_DATADIR}/pkgconfig "${definitions}" "")
if(OPTPIPE_BUILD_COMPILED)
    pkg_config_file(
        optpipe-compiled ${CMAKE_INSTALL_LIBDIR}/pkgconfig "${definitions} -DOPTPIPE_COMPILED=1" " -L\${libdir} -loptpipe"
    )
endif()
if(installs_c)
    set(requires "") # the library has linked what it needs
    pkg_config_file(optpipe-c ${CMAKE_INSTALL_LIBDIR}/pkgconfig "" " -L\${libdir} -loptpipe_c")
endif()
