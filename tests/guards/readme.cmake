# cmake -DPAGES=<file>,... -DWORK_DIR=<folder> [-DFAULT=<line>] -P readme.cmake -- <compiler> <flag>...
# Compiles every C++ example of README and other pages, in the surroundings that tests/guards/readme.cpp gives it: the n-th
# as example_<n>.inc, the lines with #include of all of them as includes.inc. A fault is appended to the first one. Examples
# of LibTorch are left out, because it may not be there.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/arguments.cmake)

string(REPLACE "," ";" PAGES "${PAGES}")
set(text "")
foreach(page IN LISTS PAGES)
    file(READ ${page} page)
    string(APPEND text "${page}")
endforeach()
string(REPLACE ";" "@semicolon@" text "${text}")
string(REPLACE "[" "@open@" text "${text}") # in lists, brackets join elements
string(REPLACE "]" "@close@" text "${text}")
string(REGEX MATCHALL "```cpp\n[^`]*```" examples "${text}")
list(FILTER examples EXCLUDE REGEX "optpipe/execution/libtorch/")
list(LENGTH examples count)
set(includes "")
set(at 0)
foreach(example IN LISTS examples)
    math(EXPR at "${at} + 1")
    string(REGEX REPLACE "^```cpp\n|```$" "" example "${example}")
    string(REGEX MATCHALL "#include[^\n]*\n" found "${example}")
    string(APPEND includes ${found})
    string(REGEX REPLACE "#include[^\n]*\n" "" example "${example}")
    string(REPLACE "@semicolon@" ";" example "${example}")
    string(REPLACE "@open@" "[" example "${example}")
    string(REPLACE "@close@" "]" example "${example}")
    file(WRITE ${WORK_DIR}/example_${at}.inc "${example}")
endforeach()
file(WRITE ${WORK_DIR}/includes.inc "${includes}")
if(FAULT)
    file(APPEND ${WORK_DIR}/example_1.inc "${FAULT}\n")
endif()

execute_process(
    COMMAND ${arguments} -I${WORK_DIR} -DEXAMPLES=${count} -fsyntax-only ${CMAKE_CURRENT_LIST_DIR}/readme.cpp
    RESULT_VARIABLE status ERROR_VARIABLE errors
)
if(NOT status EQUAL 0)
    message(FATAL_ERROR "${errors}")
endif()
message(STATUS "${count} examples")
