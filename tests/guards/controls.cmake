# cmake -DCOMPILER=... -DINCLUDE_DIR=... -DUNIT=<source to write> [-DPRECOMPILED=<header>] -P controls.cmake -- <file>...
# With -DOPTPIPE_CONTROL each file compiles, in a namespace of its own: so the mistake that it shows is the only one.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/arguments.cmake)

cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH tests)
set(sources "")
foreach(source IN LISTS arguments)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${tests})
    list(APPEND sources ${source})
endforeach()
execute_process(
    COMMAND ${CMAKE_COMMAND} -DUNIT=${UNIT} -DROOT=${tests} -P ${tests}/unit.cmake -- ${sources}
    COMMAND_ERROR_IS_FATAL ANY
)
set(precompiled "")
if(PRECOMPILED)
    set(precompiled -include ${PRECOMPILED})
endif()
execute_process(
    COMMAND ${COMPILER} -std=c++20 -DOPTPIPE_COMPILED=1 -fsyntax-only -fdiagnostics-color=never -I${INCLUDE_DIR} -I${tests}
            ${precompiled} -DOPTPIPE_CONTROL ${UNIT}
    RESULT_VARIABLE status
)
if(NOT status EQUAL 0)
    message(FATAL_ERROR "a control is refused as well")
endif()
