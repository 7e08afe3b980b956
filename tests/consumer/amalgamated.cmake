# cmake -DSOURCE_DIR=... -DWORK_DIR=... -DCOMPILER=... -P amalgamated.cmake
# Makes the single header, and compiles and runs a program that has nothing but it.
cmake_minimum_required(VERSION 3.25)

file(REMOVE_RECURSE ${WORK_DIR})
file(MAKE_DIRECTORY ${WORK_DIR})
execute_process(
    COMMAND ${CMAKE_COMMAND} -DOUT=${WORK_DIR}/optpipe.hpp -P ${SOURCE_DIR}/cmake/amalgamate.cmake
    COMMAND_ERROR_IS_FATAL ANY
)
execute_process(
    COMMAND ${COMPILER} -std=c++20 -Wall -Wextra -Wpedantic -Werror -I${WORK_DIR}
            ${CMAKE_CURRENT_LIST_DIR}/amalgamated.cpp -o ${WORK_DIR}/amalgamated -pthread
    COMMAND_ERROR_IS_FATAL ANY
)
execute_process(COMMAND ${WORK_DIR}/amalgamated OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
# It is never the compiled library's.
execute_process(
    COMMAND ${COMPILER} -std=c++20 -E -DOPTPIPE_COMPILED=1 -I${WORK_DIR}
            ${CMAKE_CURRENT_LIST_DIR}/amalgamated.cpp
    RESULT_VARIABLE status
    ERROR_VARIABLE messages
    OUTPUT_QUIET
)
if(status EQUAL 0 OR NOT messages MATCHES "the single header isn't for the compiled library")
    message(FATAL_ERROR "OPTPIPE_COMPILED isn't refused:\n${messages}")
endif()
