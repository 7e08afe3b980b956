include_guard()

# optpipe::compiled: what optpipe::optpipe is, with all that isn't a template of the user's types in a static library. Code
# that links it compiles declarations only. Each source sets OPTPIPE_COMPILING to the unit that it defines
# (core/compiled.hpp). It is built by default at top level; elsewhere, once something links it.
file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/compiled/*.cpp)
if(NOT OPTPIPE_HAS_MILP)
    list(FILTER sources EXCLUDE REGEX "/(solver|formulation|planner)\\.cpp$")
endif()
if(NOT "online" IN_LIST planning)
    list(FILTER sources EXCLUDE REGEX "/online\\.cpp$")
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
