# cmake -DNM=... -DHEADER=... -P c_exports.cmake -- <shared library>
# The library exports the functions that the header of the C interface declares, and nothing else.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/arguments.cmake)

execute_process(
    COMMAND ${NM} --dynamic --defined-only --format=posix ${arguments} OUTPUT_VARIABLE exported COMMAND_ERROR_IS_FATAL ANY
)
string(REGEX REPLACE " [^\n]*" "" exported "${exported}")
string(REGEX MATCHALL "[^\n]+" exported "${exported}")
file(READ ${HEADER} text)
string(REGEX REPLACE "/\\*[^*]*\\*+([^/*][^*]*\\*+)*/" "" text "${text}")
string(REGEX MATCHALL "optpipe_[a-z_]+\\(" declared "${text}")
list(TRANSFORM declared REPLACE "\\($" "")

set(wrong "")
foreach(name IN LISTS exported)
    if(NOT name IN_LIST declared)
        string(APPEND wrong "it exports ${name}\n")
    endif()
endforeach()
foreach(name IN LISTS declared)
    if(NOT name IN_LIST exported)
        string(APPEND wrong "it doesn't export ${name}\n")
    endif()
endforeach()
if(wrong)
    message(FATAL_ERROR "${arguments}:\n${wrong}")
endif()
list(LENGTH declared count)
message(STATUS "${count} functions")
