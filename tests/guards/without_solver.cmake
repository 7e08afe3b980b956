# cmake -P without_solver.cmake -- <compiler> <flag>... <source>
# The source includes neither Eigen nor oneTBB, although both may be there.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/arguments.cmake)

execute_process(COMMAND ${arguments} -M RESULT_VARIABLE status OUTPUT_VARIABLE included ERROR_VARIABLE errors)
if(NOT status EQUAL 0)
    message(FATAL_ERROR "${errors}")
endif()
string(REGEX MATCH "[^ \n]*/(Eigen|tbb)/[^ \n]*" found "${included}")
if(found)
    message(FATAL_ERROR "includes ${found}")
endif()
