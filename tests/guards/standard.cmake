# cmake -DCOMPILER=... -P standard.cmake -- <include directory>
# Below C++20, without infinity or exceptions, with min and max as macros, or with Clang and containers that aren't for
# constant expressions: one #error, whichever header comes first: each header includes one
# of ours before anything else, down to core/standard.hpp, and what that says is the first error and ends the compilation.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/arguments.cmake)
set(include_dir ${arguments})

file(GLOB_RECURSE headers RELATIVE ${include_dir} ${include_dir}/*.hpp)
list(REMOVE_ITEM headers optpipe/core/standard.hpp optpipe/version.hpp)
foreach(header IN LISTS headers)
    file(STRINGS ${include_dir}/${header} first REGEX "^ *#include" LIMIT_COUNT 1)
    if(NOT first MATCHES "^#include [<\"]optpipe/")
        message(FATAL_ERROR "${header} has to begin with #include \"optpipe/core/standard.hpp\", or with a header that does")
    endif()
endforeach()

function(compile header)
    execute_process(
        COMMAND ${COMPILER} ${ARGN} -I${include_dir} -fsyntax-only -fmessage-length=0 -fdiagnostics-color=never
                -DOPTPIPE_HEADER=<${header}> ${CMAKE_CURRENT_LIST_DIR}/header.cpp
        RESULT_VARIABLE status
        ERROR_VARIABLE output
    )
    string(REGEX MATCHALL "error: [^\n]*" errors "${output}")
    set(status ${status} PARENT_SCOPE)
    set(errors "${errors}" PARENT_SCOPE)
endfunction()
function(refused header need)
    compile(${header} ${ARGN})
    list(LENGTH errors count)
    if(status EQUAL 0 OR NOT count EQUAL 2 OR NOT errors MATCHES "^error: (#error )?\"OptPipe needs ${need}: ")
        message(FATAL_ERROR "${header} with ${ARGN} says: ${errors}")
    endif()
endfunction()
set(standard "C\\+\\+20")
refused(optpipe/core.hpp ${standard} -std=c++17)
refused(optpipe/optpipe.hpp ${standard} -std=c++17)
refused(optpipe/core.hpp infinity -std=c++20 -ffast-math)
refused(optpipe/core.hpp exceptions -std=c++20 -fno-exceptions)
refused(optpipe/core.hpp "the names min and max" -std=c++20 "-Dmax(a, b)=(a)")
if(COMPILER MATCHES "clang")
    refused(optpipe/core.hpp "constexpr containers" -std=c++20 -D_GLIBCXX_DEBUG)
endif()
compile(optpipe/core.hpp -std=c++20 -ffast-math -fno-finite-math-only)
if(NOT status EQUAL 0)
    message(FATAL_ERROR "-fno-finite-math-only behind -ffast-math is refused: ${errors}")
endif()

# _MSVC_LANG is what counts where there is one.
refused(optpipe/core/standard.hpp ${standard} -std=c++20 -D_MSVC_LANG=201703L)
compile(optpipe/core/standard.hpp -std=c++17 -D_MSVC_LANG=202002L)
if(NOT status EQUAL 0)
    message(FATAL_ERROR "MSVC's C++20 is refused: ${errors}")
endif()
