include_guard()

# optpipe_layer(<name> [FOLDER <folder>] [WITHOUT <folder>...] [DEPENDS <layer>...] [HEADERS <file>...]
#               [PACKAGES <package>... TARGETS <target>... [DEFINITIONS <definition>...]])
#
# Adds the header-only target optpipe::<name>: include/optpipe/<folder>/** (by default <name>) but for the folders
# WITHOUT, the umbrella include/optpipe/<folder>.hpp, and HEADERS, relative to include/optpipe. PACKAGES are looked up
# again by find_package(optpipe), for those who ask for this layer or for one that depends on it.
function(optpipe_layer name)
    cmake_parse_arguments(PARSE_ARGV 1 layer "" "FOLDER" "WITHOUT;DEPENDS;HEADERS;PACKAGES;TARGETS;DEFINITIONS")
    if(NOT layer_FOLDER)
        set(layer_FOLDER ${name})
    endif()
    set(root ${PROJECT_SOURCE_DIR}/include)
    file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${root}/optpipe/${layer_FOLDER}/*.hpp)
    foreach(folder IN LISTS layer_WITHOUT)
        list(FILTER headers EXCLUDE REGEX "/include/optpipe/${folder}/")
    endforeach()
    file(GLOB umbrella CONFIGURE_DEPENDS ${root}/optpipe/${layer_FOLDER}.hpp)
    list(TRANSFORM layer_HEADERS PREPEND ${root}/optpipe/)
    list(TRANSFORM layer_DEPENDS PREPEND optpipe::)

    add_library(optpipe_${name} INTERFACE)
    add_library(optpipe::${name} ALIAS optpipe_${name})
    target_compile_features(optpipe_${name} INTERFACE cxx_std_20)
    target_compile_definitions(optpipe_${name} INTERFACE ${layer_DEFINITIONS})
    target_link_libraries(optpipe_${name} INTERFACE ${layer_DEPENDS} ${layer_TARGETS})
    target_sources(
        optpipe_${name}
        INTERFACE FILE_SET HEADERS BASE_DIRS ${root} FILES ${headers} ${umbrella} ${layer_HEADERS}
    )

    set(packages ${layer_PACKAGES})
    foreach(dependency IN LISTS layer_DEPENDS)
        get_target_property(inherited ${dependency} OPTPIPE_PACKAGES)
        list(APPEND packages ${inherited})
    endforeach()
    list(REMOVE_DUPLICATES packages)
    set_target_properties(optpipe_${name} PROPERTIES EXPORT_NAME ${name} OPTPIPE_PACKAGES "${packages}")
    set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY OPTPIPE_LAYERS ${name})
endfunction()
