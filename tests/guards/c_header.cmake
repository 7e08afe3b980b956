# cmake -DCOMPILER=... -DWORK_DIR=... -P c_header.cmake -- <header>
# The header of the C interface is C99 and C11, and C++ as well, without a warning. COMPILER is that of C++.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/arguments.cmake)

set(pedantic -Wall -Wextra -pedantic -Werror -fsyntax-only)
foreach(standard c99 c11 c++98 c++20)
    string(REGEX MATCH "c(\\+\\+)?" language ${standard})
    set(prototypes "")
    if(language STREQUAL "c")
        set(prototypes -Wstrict-prototypes)
    endif()
    set(source "#include \"${arguments}\"\nint main(void) { return 0; }\n")
    file(WRITE ${WORK_DIR}/header.c "${source}")
    execute_process(
        COMMAND ${COMPILER} -x ${language} -std=${standard} ${pedantic} ${prototypes} ${WORK_DIR}/header.c
        RESULT_VARIABLE status
        ERROR_VARIABLE errors
    )
    if(NOT status EQUAL 0)
        message(FATAL_ERROR "as ${standard}: ${errors}")
    endif()
endforeach()
