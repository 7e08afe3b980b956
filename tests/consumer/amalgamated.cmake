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

# planner_is(<there> <option>...): whether a source that includes the header sees plan(), with these options.
function(planner_is there)
    execute_process(
        COMMAND ${COMPILER} -std=c++20 -E -P ${ARGN} ${CMAKE_CURRENT_LIST_DIR}/amalgamated.cpp
        OUTPUT_VARIABLE text
        COMMAND_ERROR_IS_FATAL ANY
    )
    string(FIND "${text}" "struct plan_options" at)
    if(there AND at EQUAL -1)
        message(FATAL_ERROR "plan() isn't declared with ${ARGN}")
    elseif(NOT there AND NOT at EQUAL -1)
        message(FATAL_ERROR "plan() is declared with ${ARGN}")
    endif()
endfunction()

# The solver is found as CMake finds it: by both of its packages. Here their headers are empty, which is enough to look.
file(STRINGS ${WORK_DIR}/optpipe.hpp includes REGEX "^ *# *include *<(Eigen|oneapi)/")
list(TRANSFORM includes REPLACE "^.*<(.*)>.*$" "\\1")
foreach(include IN LISTS includes)
    file(WRITE ${WORK_DIR}/packages/${include} "")
endforeach()
# The same for the header in the tree.
file(WRITE ${WORK_DIR}/tree/optpipe.hpp "#include <optpipe/optpipe.hpp>\n")
foreach(header -I${WORK_DIR} "-I${WORK_DIR}/tree;-I${SOURCE_DIR}/include")
    planner_is(TRUE ${header} -I${WORK_DIR}/packages)
    planner_is(TRUE ${header} -I${WORK_DIR}/packages -DOPTPIPE_HAS_MILP=1)
    planner_is(FALSE ${header} -I${WORK_DIR}/packages -DOPTPIPE_HAS_MILP=0)
endforeach()
planner_is(FALSE -I${WORK_DIR}/tree -I${SOURCE_DIR}/include -I${WORK_DIR}/packages -DOPTPIPE_COMPILED=1)
