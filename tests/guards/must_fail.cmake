# cmake -DSENTENCES=<regex>//... -P must_fail.cmake -- <command>...
# Passes if the command fails and its output has each sentence: a test that fails for another reason has not bitten.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/arguments.cmake)

execute_process(COMMAND ${arguments} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(status EQUAL 0)
    message(FATAL_ERROR "passed, but has to fail:\n${output}")
endif()
string(REGEX REPLACE "[ \n]+" " " words "${output}") # message() breaks lines
string(REPLACE "//" ";" SENTENCES "${SENTENCES}")
foreach(sentence IN LISTS SENTENCES)
    if(NOT words MATCHES "${sentence}")
        message(FATAL_ERROR "failed without saying: ${sentence}\n${output}")
    endif()
endforeach()
