# cmake -DCOMPILER=... -DINCLUDE_DIR=... [-DPRECOMPILED=<header>] -P compile_fail.cmake -- <file>
# The file opens with lines `// expect: <regex>`. It has to be refused in those words; controls.cmake says that it is for
# the mistake that is shown. Nothing that is printed may match a `// never: <regex>`.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/arguments.cmake)
set(source ${arguments})
cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH tests)

set(compile ${COMPILER} -std=c++20 -DOPTPIPE_COMPILED=1 -fsyntax-only -fmessage-length=0 -fdiagnostics-color=never
    -I${INCLUDE_DIR} -I${tests} ${source}
)
if(PRECOMPILED)
    list(APPEND compile -include ${PRECOMPILED})
endif()
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
file(STRINGS ${source} words REGEX "^// never: ")
list(TRANSFORM words REPLACE "^// never: *" "")
foreach(word IN LISTS words)
    if(output MATCHES "${word}")
        message(FATAL_ERROR "somebody says: ${word}")
    endif()
endforeach()
