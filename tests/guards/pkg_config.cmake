# cmake -DBINARY_DIR=... -DWORK_DIR=... -DCOMPILER=... -DPKG_CONFIG=... -DSOURCE_DIR=... -DLIBRARY=optpipe[-compiled|-c]
#       -DSOURCE=<file> "-DOPTIONS=<option> ..." -P pkg_config.cmake
# What pkg-config says of an installed package, moved somewhere else, compiles and links SOURCE, which runs.
cmake_minimum_required(VERSION 3.25)

file(REMOVE_RECURSE ${WORK_DIR})
execute_process(
    COMMAND ${CMAKE_COMMAND} --install ${BINARY_DIR} --prefix ${WORK_DIR}/staged --component optpipe_development
    OUTPUT_QUIET
    COMMAND_ERROR_IS_FATAL ANY
)
file(RENAME ${WORK_DIR}/staged ${WORK_DIR}/prefix)
file(GLOB_RECURSE files ${WORK_DIR}/prefix/*.pc)
set(folders "")
foreach(file IN LISTS files)
    cmake_path(GET file PARENT_PATH folder)
    list(APPEND folders ${folder})
endforeach()
list(JOIN folders ":" folders)
set(ENV{PKG_CONFIG_PATH} ${folders}:$ENV{PKG_CONFIG_PATH})

execute_process(
    COMMAND ${PKG_CONFIG} --cflags --libs ${LIBRARY}
    OUTPUT_VARIABLE said
    OUTPUT_STRIP_TRAILING_WHITESPACE
    COMMAND_ERROR_IS_FATAL ANY
)
message(NOTICE "${LIBRARY}: ${said}")
if(NOT said MATCHES "${WORK_DIR}/prefix")
    message(FATAL_ERROR "${LIBRARY} is not where it was moved to")
endif()
execute_process(
    COMMAND ${PKG_CONFIG} --variable=libdir ${LIBRARY}
    OUTPUT_VARIABLE folder
    OUTPUT_STRIP_TRAILING_WHITESPACE
    COMMAND_ERROR_IS_FATAL ANY
)
set(ENV{LD_LIBRARY_PATH} ${folder}:$ENV{LD_LIBRARY_PATH})
separate_arguments(said UNIX_COMMAND "${said}")
separate_arguments(OPTIONS UNIX_COMMAND "${OPTIONS}")
execute_process(
    COMMAND ${COMPILER} ${OPTIONS} ${SOURCE_DIR}/tests/consumer/${SOURCE} ${said} -o ${WORK_DIR}/consumer
    COMMAND_ERROR_IS_FATAL ANY
)
execute_process(COMMAND ${WORK_DIR}/consumer COMMAND_ERROR_IS_FATAL ANY)
