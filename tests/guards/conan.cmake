# cmake -DCONAN=... -DSOURCE_DIR=... -DWORK_DIR=... -P conan.cmake
# Conan builds the package of this checkout with the distribution's packages, and a project that takes it runs.
cmake_minimum_required(VERSION 3.25)

file(MAKE_DIRECTORY ${WORK_DIR})
set(ENV{CONAN_HOME} ${WORK_DIR}/home)
execute_process(COMMAND ${CONAN} profile detect --force OUTPUT_QUIET ERROR_QUIET COMMAND_ERROR_IS_FATAL ANY)
foreach(compiled True False)
    execute_process(
        COMMAND ${CONAN} create ${SOURCE_DIR}/cmake/conan --profile:host default
                --profile:host ${SOURCE_DIR}/cmake/conan/system_packages -o optpipe/*:compiled=${compiled}
                -c tools.cmake.cmake_layout:test_folder=${WORK_DIR}/test_package
        COMMAND_ERROR_IS_FATAL ANY
    )
endforeach()
