# Installs the library (WAY=package) or leaves it where it is (WAY=subdirectory), and builds and runs ../consumer. What
# isn't there has to be named, with what to install, before anything is compiled.
cmake_minimum_required(VERSION 3.25)

file(REMOVE_RECURSE ${WORK_DIR})
set(options -DWAY=${WAY} -DCOMPILED=${COMPILED} "-DCMAKE_CXX_FLAGS=${FLAGS}")
if(WAY STREQUAL "package")
    execute_process(
        COMMAND ${CMAKE_COMMAND} --install ${BINARY_DIR} --prefix ${WORK_DIR}/staged --component optpipe_development
        OUTPUT_QUIET
        COMMAND_ERROR_IS_FATAL ANY
    )
    # A package is found where it was moved to, not where it was installed.
    file(RENAME ${WORK_DIR}/staged ${WORK_DIR}/prefix)
    list(APPEND options -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix -DHAS_JSON=${HAS_JSON} -DHAS_MPI=${HAS_MPI}
         -DHAS_NCCL=${HAS_NCCL}
    )

    file(GLOB_RECURSE ours RELATIVE ${SOURCE_DIR}/include ${SOURCE_DIR}/include/*.hpp)
    file(GLOB_RECURSE theirs RELATIVE ${WORK_DIR}/prefix/include ${WORK_DIR}/prefix/include/*.hpp)
    if(NOT ours STREQUAL theirs)
        message(FATAL_ERROR "the headers of the repository are not those installed:\n${ours}\n${theirs}")
    endif()
    file(GLOB ours RELATIVE ${SOURCE_DIR}/schemas ${SOURCE_DIR}/schemas/*.json)
    file(GLOB theirs RELATIVE ${WORK_DIR}/prefix/share/optpipe/schemas ${WORK_DIR}/prefix/share/optpipe/schemas/*.json)
    if(NOT ours OR NOT ours STREQUAL theirs)
        message(FATAL_ERROR "the schemas of the repository are not those installed:\n${ours}\n${theirs}")
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
if(COMPILED)
    execute_process(COMMAND ${WORK_DIR}/build/consumer_of_compiled COMMAND_ERROR_IS_FATAL ANY)
endif()

if(WITH_C)
    execute_process(
        COMMAND ${CMAKE_COMMAND} -S ${SOURCE_DIR}/tests/consumer/c -B ${WORK_DIR}/c -G ${GENERATOR}
                -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix "-DCMAKE_C_FLAGS=${FLAGS}" -DCMAKE_C_COMPILER=${C_COMPILER}
        COMMAND_ERROR_IS_FATAL ANY
    )
    execute_process(COMMAND ${CMAKE_COMMAND} --build ${WORK_DIR}/c COMMAND_ERROR_IS_FATAL ANY)
    execute_process(COMMAND ${WORK_DIR}/c/consumer_of_c COMMAND_ERROR_IS_FATAL ANY)
endif()

set(project ${CMAKE_COMMAND} -S ${SOURCE_DIR}/tests/consumer/refused -G ${GENERATOR} ${options} -DCMAKE_CXX_COMPILER=${COMPILER})
function(is_refused name layer sentence)
    execute_process(
        COMMAND ${CMAKE_COMMAND} "-DSENTENCES=${sentence}" -P ${CMAKE_CURRENT_LIST_DIR}/must_fail.cmake --
                ${project} -B ${WORK_DIR}/${name} -DASKS_FOR=${layer} ${ARGN}
        COMMAND_ERROR_IS_FATAL ANY
    )
endfunction()
set(without_eigen -DCMAKE_DISABLE_FIND_PACKAGE_Eigen3=ON)
set(get_eigen "needs Eigen3 \\(apt-get install libeigen3-dev\\)")
if(WAY STREQUAL "package")
    is_refused(no_such_layer schedul "optpipe has no component schedul, only core, pipeline, schedule, ")
    is_refused(no_eigen planner "optpipe::planner ${get_eigen}" ${without_eigen})
    is_refused(no_mpi mpi "optpipe::mpi needs MPI \\(apt-get install libopenmpi-dev\\)" -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON)
else()
    is_refused(no_eigen planner "optpipe::milp ${get_eigen}" ${without_eigen})
    is_refused(no_mpi mpi "optpipe::mpi needs MPI \\(configure with OPTPIPE_WITH_MPI=ON\\)")
    if(HAS_MPI)
        execute_process(
            COMMAND ${project} -B ${WORK_DIR}/asks_for_mpi -DASKS_FOR=mpi -DOPTPIPE_WITH_MPI=ON COMMAND_ERROR_IS_FATAL ANY
        )
    endif()
    is_refused(
        no_cuda cuda "OPTPIPE_WITH_CUDA needs CUDAToolkit: install the CUDA Toolkit" -DOPTPIPE_WITH_CUDA=ON
        -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON
    )
endif()
# What needs none of it doesn't ask for it.
execute_process(
    COMMAND ${project} -B ${WORK_DIR}/needs_nothing -DASKS_FOR=schedule ${without_eigen} -DCMAKE_DISABLE_FIND_PACKAGE_TBB=ON
            -DCMAKE_DISABLE_FIND_PACKAGE_ZLIB=ON -DCMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON
    COMMAND_ERROR_IS_FATAL ANY
)
