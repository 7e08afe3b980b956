# cmake -DSOURCE_DIR=<project> -DWORK_DIR=<folder> -DGENERATOR=<generator> -DCOMPILER=<compiler> -P without_mpi.cmake
# Where there is no MPI nothing is built with it: FindMPI leaves its target even then.
cmake_minimum_required(VERSION 3.25)

execute_process(
    COMMAND ${CMAKE_COMMAND} -S ${SOURCE_DIR} -B ${WORK_DIR} -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${COMPILER}
            -DMPI_CXX_COMPILER=${CMAKE_COMMAND} -DMPI_SKIP_GUESSING=ON # a wrapper that knows no MPI
            -DOPTPIPE_WITH_CUDA=OFF -DOPTPIPE_WITH_NCCL=OFF -DCMAKE_EXPORT_COMPILE_COMMANDS=ON
    RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output
)
if(NOT status EQUAL 0)
    message(FATAL_ERROR "${output}")
endif()
# FindMPI defines this for all that links its target.
file(STRINGS ${WORK_DIR}/compile_commands.json commands REGEX "\"command\".*OMPI_SKIP_MPICXX")
if(commands)
    list(JOIN commands "\n" commands)
    message(FATAL_ERROR "built with MPI:\n${commands}")
endif()
if(NOT output MATCHES "it needs MPI")
    message(FATAL_ERROR "nothing was left out for want of MPI:\n${output}")
endif()
