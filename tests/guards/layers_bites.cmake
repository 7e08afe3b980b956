# Every #include of bad_tree/ that says `// expect: <sentence>` is reported with that sentence, and nothing else is.
cmake_minimum_required(VERSION 3.25)
set(root ${CMAKE_CURRENT_LIST_DIR}/bad_tree/optpipe)

execute_process(
    COMMAND ${CMAKE_COMMAND} -P ${CMAKE_CURRENT_LIST_DIR}/layers.cmake -- ${root}
    RESULT_VARIABLE status
    OUTPUT_VARIABLE output
    ERROR_VARIABLE output
)
if(status EQUAL 0)
    message(FATAL_ERROR "the bad tree passes:\n${output}")
endif()

set(expected 0)
file(GLOB_RECURSE files RELATIVE ${root} ${root}/*.hpp)
foreach(file IN LISTS files)
    file(STRINGS ${root}/${file} lines REGEX "// expect: ")
    foreach(line IN LISTS lines)
        string(REGEX REPLACE "^(# *|// )?(.*[^ ]) *// expect: (.*)" "${file}: \\2: \\3" sentence "${line}")
        string(FIND "${output}" "${sentence}\n" position)
        if(position EQUAL -1)
            message(FATAL_ERROR "not reported: ${sentence}\n${output}")
        endif()
        math(EXPR expected "${expected} + 1")
    endforeach()
endforeach()
if(NOT output MATCHES " ${expected} violations")
    message(FATAL_ERROR "expected ${expected} violations:\n${output}")
endif()
