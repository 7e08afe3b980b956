# cmake -DSOURCE_DIR=... -DWORK_DIR=... -DGENERATOR=... -DCOMPILER=... [-DPKG_CONFIG=...] -P absolute_folder.cmake
# Installed with an absolute folder of headers, CMake's package and pkg-config's file find them there.
cmake_minimum_required(VERSION 3.25)

file(REMOVE_RECURSE ${WORK_DIR})
set(headers ${WORK_DIR}/elsewhere/headers)
execute_process(
    COMMAND ${CMAKE_COMMAND} -S ${SOURCE_DIR} -B ${WORK_DIR}/build -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${COMPILER}
            -DCMAKE_INSTALL_PREFIX=${WORK_DIR}/prefix -DCMAKE_INSTALL_INCLUDEDIR=${headers}
            -DOPTPIPE_BUILD_COMPILED=OFF -DOPTPIPE_BUILD_EXAMPLES=OFF -DOPTPIPE_BUILD_BENCH=OFF -DOPTPIPE_BUILD_TESTS=OFF
            -DOPTPIPE_WITH_CUDA=OFF -DOPTPIPE_WITH_NCCL=OFF -DOPTPIPE_WITH_MPI=OFF
    OUTPUT_QUIET
    COMMAND_ERROR_IS_FATAL ANY
)
execute_process(
    COMMAND ${CMAKE_COMMAND} --install ${WORK_DIR}/build --component optpipe_development
    OUTPUT_QUIET
    COMMAND_ERROR_IS_FATAL ANY
)
if(NOT EXISTS ${headers}/optpipe/optpipe.hpp)
    message(FATAL_ERROR "the headers aren't in ${headers}")
endif()

# Compiles what asks for one layer, by CMake and by pkg-config.
execute_process(
    COMMAND ${CMAKE_COMMAND} -S ${SOURCE_DIR}/tests/consumer/refused -B ${WORK_DIR}/consumer -G ${GENERATOR} -DWAY=package
            -DASKS_FOR=schedule -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix -DCMAKE_CXX_COMPILER=${COMPILER}
    COMMAND_ERROR_IS_FATAL ANY
)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${WORK_DIR}/consumer COMMAND_ERROR_IS_FATAL ANY)
if(NOT PKG_CONFIG)
    return()
endif()
set(ENV{PKG_CONFIG_PATH} ${WORK_DIR}/prefix/share/pkgconfig:$ENV{PKG_CONFIG_PATH})
execute_process(
    COMMAND ${PKG_CONFIG} --variable=includedir optpipe
    OUTPUT_VARIABLE said
    OUTPUT_STRIP_TRAILING_WHITESPACE
    COMMAND_ERROR_IS_FATAL ANY
)
cmake_path(NORMAL_PATH said)
if(NOT said STREQUAL headers)
    message(FATAL_ERROR "pkg-config says that the headers are in ${said}, not in ${headers}")
endif()
