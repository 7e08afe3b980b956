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

# Bytes that no text has, in UTF-8 or ASCII: a benchmark printed what it had no name for.
string(ASCII 127 192 193 245 246 247 248 249 250 251 252 253 254 255 never)
file(READ ${PAGE} text)
if(text MATCHES "([^\n]*)[${never}]")
    message(FATAL_ERROR "${PAGE}: what follows isn't text: ${CMAKE_MATCH_1}")
endif()
