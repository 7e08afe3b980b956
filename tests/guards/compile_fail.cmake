# cmake -DCOMPILER=... -DINCLUDE_DIR=... -P compile_fail.cmake -- <file>
# The file opens with lines `// expect: <regex>`. It has to be refused in those words, and to compile with
# -DOPTPIPE_CONTROL: so the mistake that is shown is the only one.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/arguments.cmake)
set(source ${arguments})

set(compile ${COMPILER} -std=c++20 -fsyntax-only -fmessage-length=0 -fdiagnostics-color=never -I${INCLUDE_DIR} ${source})
if(NOT EXISTS ${source})
    message(FATAL_ERROR "${source} doesn't exist")
endif()

file(STRINGS ${source} sentences REGEX "^// expect: ")
list(TRANSFORM sentences REPLACE "^// expect: *" "")
if(NOT sentences)
    message(FATAL_ERROR "${source} has no `// expect:`")
endif()

execute_process(COMMAND ${compile} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
message(NOTICE "${output}")
if(status EQUAL 0)
    message(FATAL_ERROR "${source} compiles, but has to be refused")
endif()
# Compilers quote the offending source line, and with it the sentence: only what they say themselves counts.
string(REGEX MATCHALL "[^\n]*error: [^\n]*" errors "${output}")
foreach(sentence IN LISTS sentences)
    if(NOT errors MATCHES "${sentence}")
        message(FATAL_ERROR "nobody says: ${sentence}")
    endif()
endforeach()

execute_process(COMMAND ${compile} -DOPTPIPE_CONTROL RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(NOT status EQUAL 0)
    message(FATAL_ERROR "the control is refused as well:\n${output}")
endif()
