# cmake -P numbers.cmake -- <folder>...
# A number in an algorithm has a name, and a comment that says what it trades: it is a constant, or the default of a member.
# Refused are floating literals other than 0, 0.5, 1 and 2, and integers from 16 on, that stand anywhere else. Widths of
# shifts, hexadecimal constants and the 100 of percentages are no choice. Smaller integers are left to the reader: most are
# counts that the problem sets, as the three passes of a microbatch.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/arguments.cmake)

# A tab stands for the semicolon, which would separate the elements of a list.
set(type "[A-Za-z_][A-Za-z0-9_:<>, ]*")
set(digits "[0-9][0-9']*")
set(number "(-?${digits}(\\.[0-9]*)?(e[-+]?[0-9]+)?[FULZz]*|-?plain)")
set(exempt
    "(.)0x[0-9A-Fa-f'p-]+(.)" # of a hash
    "(<<=?|>>=?) [0-9]+(U?)"
    "(<)[0-9]+(>)" # the capacity of a type
    "([^0-9.'])100([^0-9.'])"
    "([^0-9.'])100\\.0([^0-9e])"
    "([^0-9.'])0\\.5([^0-9e])"
    "([^0-9.'])[012]\\.0([^0-9e])"
)
set(named
    "constexpr [^\t(){}=]* [a-z_]+(\\[\\])? = [^\t]*\t" # constexpr double most = 1e15
    "[\n{\t(,] *${type} [a-z_]+ = ${number}(, [a-z_]+ = ${number})*[\t,)]" # std::size_t first = 3, most = 96
    "[\n{\t] *${type} [a-z_]+{[^\t()]*}\t" # std::array<double, 2> factors{1.25, 2.0}
)
set(float "${digits}\\.[0-9]*(e[-+]?[0-9]+)?|${digits}e[-+]?[0-9]+")
set(integer "1[6-9]|[2-9][0-9]|[1-9][0-9'][0-9'][0-9']*")
set(bare "[^A-Za-z0-9_.'](${float}|${integer})[FULZz]*[^A-Za-z0-9_.']")

set(found "")
foreach(root IN LISTS arguments)
    file(GLOB_RECURSE files ${root}/*.hpp)
    if(NOT files)
        message(FATAL_ERROR "${root} has no headers")
    endif()
    foreach(file IN LISTS files)
        file(READ ${file} text)
        string(REPLACE ";" "\t" text "${text}")
        string(REGEX REPLACE "//[^\n]*" "" text "${text}")
        string(REGEX REPLACE "\n *#[^\n]*" "\n" text "${text}")
        string(REGEX REPLACE "\"[^\"\n]*\"" "\"\"" text "${text}")
        foreach(pattern IN LISTS exempt)
            string(REGEX REPLACE "${pattern}" "\\1plain\\2" text "${text}")
        endforeach()
        foreach(pattern IN LISTS named)
            string(REGEX REPLACE "${pattern}" "\t" text "${text}")
        endforeach()
        if(text MATCHES "[^\n\t{}]*${bare}[^\n\t{}]*")
            string(STRIP "${CMAKE_MATCH_0}" statement)
            string(APPEND found "${file}: ${statement}\n")
        endif()
    endforeach()
endforeach()
if(found)
    message(FATAL_ERROR "numbers without a name:\n${found}")
endif()
