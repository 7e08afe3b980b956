# Installs the library (WAY=package) or leaves it where it is (WAY=subdirectory), and builds and runs ../consumer.
cmake_minimum_required(VERSION 3.25)

file(REMOVE_RECURSE ${WORK_DIR})
set(options -DWAY=${WAY})
if(WAY STREQUAL "package")
    execute_process(
        COMMAND ${CMAKE_COMMAND} --install ${BINARY_DIR} --prefix ${WORK_DIR}/staged --component optpipe_development
        OUTPUT_QUIET
        COMMAND_ERROR_IS_FATAL ANY
    )
    # A package is found where it was moved to, not where it was installed.
    file(RENAME ${WORK_DIR}/staged ${WORK_DIR}/prefix)
    list(APPEND options -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix -DHAS_JSON=${HAS_JSON} -DHAS_MPI=${HAS_MPI})

    file(GLOB_RECURSE ours RELATIVE ${SOURCE_DIR}/include ${SOURCE_DIR}/include/*)
    file(GLOB_RECURSE theirs RELATIVE ${WORK_DIR}/prefix/include ${WORK_DIR}/prefix/include/*)
    if(NOT ours STREQUAL theirs)
        message(FATAL_ERROR "the headers of the repository are not those installed:\n${ours}\n${theirs}")
    endif()
    file(GLOB_RECURSE scripts ${WORK_DIR}/prefix/*.cmake)
    foreach(script IN LISTS scripts)
        file(READ ${script} text)
        foreach(place ${SOURCE_DIR} ${WORK_DIR})
            string(FIND "${text}" "${place}" position)
            if(NOT position EQUAL -1)
                message(FATAL_ERROR "${script} names ${place}")
            endif()
        endforeach()
    endforeach()
else()
    list(APPEND options -DOPTPIPE_DIR=${SOURCE_DIR})
endif()

execute_process(
    COMMAND ${CMAKE_COMMAND} -S ${SOURCE_DIR}/tests/consumer -B ${WORK_DIR}/build -G ${GENERATOR} ${options}
            -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}
    COMMAND_ERROR_IS_FATAL ANY
)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${WORK_DIR}/build COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${WORK_DIR}/build/consumer COMMAND_ERROR_IS_FATAL ANY)
