# cmake [-DPRESET=debug] [-DGUARDS=ON] [-DCTEST_OPTIONS=-R;core] -P cmake/test.cmake: builds everything and runs the tests.
# GUARDS: also what checks the code instead of running it (every header alone, and all together under a second compiler;
# code that must not compile; packages; words, links), and all random cases, of which else one in four is tried
# (OPTPIPE_RANDOM_CASES=1 in the environment: all). With the presets of the sanitizers it is always one in eight, as they
# say. Runs from any directory.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/bootstrap.cmake)

if(NOT DEFINED PRESET)
    set(PRESET release)
endif()
math(EXPR jobs "${optpipe_jobs} + 2") # those whose processes die or fail wait for most of their time
if(NOT GUARDS)
    list(APPEND CTEST_OPTIONS -LE guard)
    if(NOT DEFINED ENV{OPTPIPE_RANDOM_CASES})
        set(ENV{OPTPIPE_RANDOM_CASES} 4)
    endif()
endif()
optpipe_configure(${PRESET})
optpipe_build(${PRESET})
optpipe_run(${CMAKE_CTEST_COMMAND} --preset ${PRESET} -j ${jobs} --no-tests=error ${CTEST_OPTIONS})
