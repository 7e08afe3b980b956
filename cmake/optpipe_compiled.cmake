include_guard()

# optpipe::compiled: what optpipe::optpipe is, with all that isn't a template of the user's types in a static library. Code
# that links it compiles declarations only. Each source sets OPTPIPE_COMPILING to the unit that it defines
# (core/compiled.hpp). It is built by default at top level; elsewhere, once something links it.
file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/compiled/*.cpp)
if(NOT OPTPIPE_HAS_MILP)
    list(FILTER sources EXCLUDE REGEX "/(solver|formulation|planner)\\.cpp$")
endif()
if(NOT "online" IN_LIST planning) # neither is there without the planner and JSON
    list(FILTER sources EXCLUDE REGEX "/(online|c_interface)\\.cpp$")
endif()
add_library(optpipe_compiled STATIC ${sources})
add_library(optpipe::compiled ALIAS optpipe_compiled)
target_link_libraries(optpipe_compiled PUBLIC optpipe::optpipe)
target_compile_definitions(optpipe_compiled PUBLIC OPTPIPE_COMPILED=1)
set_target_properties(
    optpipe_compiled
    PROPERTIES EXPORT_NAME compiled
               OUTPUT_NAME optpipe
               POSITION_INDEPENDENT_CODE ON # so that it can be linked into a shared library
)
if(NOT OPTPIPE_BUILD_COMPILED)
    set_target_properties(optpipe_compiled PROPERTIES EXCLUDE_FROM_ALL ON)
endif()

# optpipe::c: the functions of optpipe_c.h in a shared library that exports nothing else. The compiled library has them as
# well. The library's ABI is the number in the header.
if("online" IN_LIST planning)
    set(c_header ${PROJECT_SOURCE_DIR}/include/optpipe_c.h)
    file(STRINGS ${c_header} c_abi REGEX "^#define OPTPIPE_C_ABI [0-9]+$")
    string(REGEX MATCH "[0-9]+$" c_abi "${c_abi}")
    set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${c_header})

    add_library(optpipe_c SHARED ${PROJECT_SOURCE_DIR}/cmake/compiled/c_interface.cpp)
    add_library(optpipe::c ALIAS optpipe_c)
    target_link_libraries(optpipe_c PRIVATE optpipe_compiled)
    foreach(target optpipe_compiled optpipe_c)
        target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}/include FILES ${c_header})
    endforeach()
    set_target_properties(optpipe_c PROPERTIES EXPORT_NAME c SOVERSION ${c_abi})
    if(APPLE)
        target_link_options(optpipe_c PRIVATE LINKER:-exported_symbol,_optpipe_*)
    elseif(NOT WIN32)
        set(exports ${PROJECT_SOURCE_DIR}/cmake/compiled/c_interface.map)
        target_link_options(optpipe_c PRIVATE LINKER:--version-script=${exports})
        set_target_properties(optpipe_c PROPERTIES LINK_DEPENDS ${exports})
    endif()
    if(NOT OPTPIPE_BUILD_C)
        set_target_properties(optpipe_c PROPERTIES EXCLUDE_FROM_ALL ON)
    endif()
endif()
