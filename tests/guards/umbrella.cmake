# cmake -DCOMPILER=... ["-DDEFINITIONS=<definition> ..."] -P umbrella.cmake -- <include directory> <header>
# What the header includes is the standard library and ourselves; with OPTPIPE_COMPILED=1 among the definitions, nothing
# that only the library needs. That it compiles, the tests headers, debug_mode and consumer.amalgamated say.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/arguments.cmake)
list(GET arguments 0 include_dir)
list(GET arguments 1 header)
set(own_headers ${include_dir}/optpipe)

separate_arguments(flags UNIX_COMMAND "${DEFINITIONS}")
list(TRANSFORM flags PREPEND -D)

# -H and not -M: for clang a file that __has_include found is a dependency, and the standard library asks for TBB.
execute_process(
    COMMAND ${COMPILER} -std=c++20 ${flags} -I${include_dir} -E -H -DOPTPIPE_HEADER=<${header}>
            ${CMAKE_CURRENT_LIST_DIR}/header.cpp
    RESULT_VARIABLE status
    OUTPUT_QUIET
    ERROR_VARIABLE output
)
if(NOT status EQUAL 0)
    message(FATAL_ERROR "${header} can't be preprocessed:\n${output}")
endif()
string(REGEX MATCHALL "\n\\.+ [^\n]+" includes "\n${output}")
list(TRANSFORM includes REPLACE "^\n\\.+ " "")
if(NOT includes MATCHES "${header}")
    message(FATAL_ERROR "the compiler lists no include of ${header}")
endif()
set(strangers "")
foreach(path IN LISTS includes)
    cmake_path(IS_PREFIX own_headers ${path} NORMALIZE is_ours)
    if(NOT is_ours AND path MATCHES "/(Eigen|unsupported|tbb|oneapi|nlohmann|CLI|boost|cuda[^/]*|nccl[^/]*|mpi[^/]*)(/|\\.h)")
        string(APPEND strangers " ${path}")
    endif()
endforeach()
if("-DOPTPIPE_COMPILED=1" IN_LIST flags)
    set(of_library "(pipeline/layer_(cuts|divisions)|program/(meaning|lower/plan_graph)|schedule/bounds/chains|milp/(lp|presolve/reduc|search/(driver|tree|cuts))|\
formulation/model_builder|planner/(bounds/(memory|storage_a)|cp|local_search|modulo|rescheduling|strategies)|io/(html_|svg_f|json_tree|timeline))")
    list(FILTER includes INCLUDE REGEX "/optpipe/${of_library}")
    list(APPEND strangers ${includes})
endif()
if(strangers)
    message(FATAL_ERROR "${header} pulls in${strangers}")
endif()
