# cmake -DSOURCE_DIR=<source> -DPAGE=<page.md> -DWORK_DIR=<folder> -P results.cmake
# The page of results, written anew from the tables that are on it, is the same page.
cmake_minimum_required(VERSION 3.25)

set(again ${WORK_DIR}/page.md)
file(REMOVE_RECURSE ${WORK_DIR})
file(MAKE_DIRECTORY ${WORK_DIR})
file(COPY_FILE ${PAGE} ${again})
execute_process(
    COMMAND ${CMAKE_COMMAND} -DONLY=page -DOUT=${again} -DKEPT=${WORK_DIR}/kept -P ${SOURCE_DIR}/cmake/results.cmake
    COMMAND_ERROR_IS_FATAL ANY
)
execute_process(COMMAND ${CMAKE_COMMAND} -E compare_files ${PAGE} ${again} RESULT_VARIABLE different)
if(different)
    message(FATAL_ERROR "${PAGE} isn't what cmake/results.cmake writes: ${again}")
endif()
