# cmake [-DPRESET=debug] [-DCTEST_OPTIONS=-R;core] -P cmake/test.cmake: builds everything and runs the tests. Runs from
# any directory.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/bootstrap.cmake)

if(NOT DEFINED PRESET)
    set(PRESET release)
endif()
optpipe_configure(${PRESET})
optpipe_build(${PRESET})
optpipe_run(${CMAKE_CTEST_COMMAND} --preset ${PRESET} -j ${optpipe_jobs} --no-tests=error ${CTEST_OPTIONS})
