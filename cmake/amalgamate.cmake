# cmake -DOUT=optpipe.hpp [-DHEADER=optpipe/optpipe.hpp] -P cmake/amalgamate.cmake
#
# Writes one header that holds HEADER and all of this library that it includes, for projects that take single files. What
# is not ours (the standard library, Eigen, oneTBB, nlohmann-json) stays an include, under the conditions of the sources:
# the solver and plan() are there if the compiler finds Eigen and oneTBB, unless OPTPIPE_HAS_MILP is 0; OPTPIPE_HAS_JSON turns
# on what needs nlohmann-json.
#
# Each header is inserted where it is included first, between guards of its own. One that was first included under a
# condition is inserted again where it is included without it; the guards keep the second from being read twice.
cmake_minimum_required(VERSION 3.25)

if(NOT OUT)
    message(FATAL_ERROR "amalgamate: needs -DOUT=<file>")
endif()
if(NOT HEADER)
    set(HEADER optpipe/optpipe.hpp)
endif()
cmake_path(SET include_dir NORMALIZE ${CMAKE_CURRENT_LIST_DIR}/../include)
if(NOT EXISTS ${include_dir}/${HEADER})
    message(FATAL_ERROR "amalgamate: there is no ${HEADER} in ${include_dir}")
endif()

# Follows the conditions in a piece of text. They are a list, outermost first; "always" is one that holds in a single
# header, which is never a compiled library's.
function(follow_conditions text variable)
    set(open ${${variable}})
    string(REGEX MATCHALL "\n# *(if|ifdef|ifndef|elif|else|endif)[^a-zA-Z_\n][^\n]*|\n# *(else|endif)" directives "${text}")
    foreach(directive IN LISTS directives)
        string(STRIP "${directive}" directive)
        if(directive MATCHES "^# *if")
            if(directive MATCHES "OPTPIPE_DEFINES")
                set(directive always)
            endif()
            list(APPEND open "${directive}")
            continue()
        endif()
        list(POP_BACK open last)
        if(NOT directive MATCHES "^# *endif")
            list(APPEND open "${directive} of ${last}")
        endif()
    endforeach()
    set(${variable} ${open} PARENT_SCOPE)
endfunction()

# insert(<header> <condition>...): appends a header to OUT, unless it is there already for these conditions.
function(insert header)
    set(outer ${ARGN})
    list(FILTER outer EXCLUDE REGEX "^always$")
    get_property(places GLOBAL PROPERTY places_of_${header})
    foreach(place IN LISTS places)
        # A place is where it was inserted: in no condition, or in ones that hold here too.
        string(REPLACE "|" ";" place "${place}")
        set(missing ${place})
        list(REMOVE_ITEM missing ${outer} everywhere)
        if(NOT missing)
            return()
        endif()
    endforeach()
    list(JOIN outer "|" place)
    set_property(GLOBAL APPEND PROPERTY places_of_${header} "everywhere|${place}")

    string(MAKE_C_IDENTIFIER "OPTPIPE_SINGLE_${header}" guard)
    string(TOUPPER ${guard} guard)
    file(APPEND ${OUT} "#ifndef ${guard}\n#define ${guard}\n")
    file(READ ${include_dir}/${header} rest)
    string(REPLACE "#pragma once\n" "" rest "${rest}")
    set(rest "\n${rest}")
    set(conditions ${outer})
    while(TRUE)
        string(FIND "${rest}" "\n#include \"optpipe/" at)
        if(at EQUAL -1)
            break()
        endif()
        string(SUBSTRING "${rest}" 0 ${at} before)
        math(EXPR at "${at} + 1")
        string(SUBSTRING "${rest}" ${at} -1 rest)
        string(REGEX MATCH "^#include \"(optpipe/[^\"]+)\"[^\n]*" line "${rest}")
        set(next ${CMAKE_MATCH_1})
        string(LENGTH "${line}" length)
        string(SUBSTRING "${rest}" ${length} -1 rest)
        file(APPEND ${OUT} "${before}\n")
        follow_conditions("${before}" conditions)
        if(next MATCHES "\\.hpp$")
            insert(${next} ${conditions})
        else() # core/standard.hpp stops old compilers with a header that there isn't
            file(APPEND ${OUT} "${line}")
        endif()
    endwhile()
    file(APPEND ${OUT} "${rest}#endif\n")
endfunction()

file(WRITE ${OUT} "// ${HEADER} and all that it includes of OptPipe, made by cmake/amalgamate.cmake.\n#pragma once\n"
     "#if defined(OPTPIPE_COMPILED)\n#error \"the single header isn't for the compiled library\"\n#endif\n"
)
insert(${HEADER})
