include_guard()

# optpipe_layer(<name> [FOLDER <folder>] [WITHOUT <folder>...] [DEPENDS <layer>...] [HEADERS <file>...]
#               [PACKAGES <package>... TARGETS <target>... [DEFINITIONS <definition>...]])
#
# Adds the header-only target optpipe::<name>: include/optpipe/<folder>/** (by default <name>) but for the folders
# WITHOUT, the umbrella include/optpipe/<folder>.hpp, and HEADERS, relative to include/optpipe. PACKAGES are looked up
# again by find_package(optpipe), for those who ask for this layer or for one that depends on it. Where one of TARGETS is
# missing here, the layer can be added but not linked: configuring stops with a sentence that says what to install.
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
    target_link_libraries(optpipe_${name} INTERFACE ${layer_DEPENDS})
    optpipe_link_packages(${name} "${layer_PACKAGES}" "${layer_TARGETS}")
    if(NOT PROJECT_IS_TOP_LEVEL)
        set_target_properties(optpipe_${name} PROPERTIES SYSTEM ON) # whose warnings are none of the consumer's
    endif()
    target_sources(
        optpipe_${name}
        INTERFACE FILE_SET HEADERS BASE_DIRS ${root} FILES ${headers} ${umbrella} ${layer_HEADERS}
    )

    set(packages "") # NCCL is looked for where CUDA was found
    foreach(dependency IN LISTS layer_DEPENDS)
        get_target_property(inherited ${dependency} OPTPIPE_PACKAGES)
        list(APPEND packages ${inherited})
    endforeach()
    list(APPEND packages ${layer_PACKAGES})
    list(REMOVE_DUPLICATES packages)
    set_target_properties(optpipe_${name} PROPERTIES EXPORT_NAME ${name} OPTPIPE_PACKAGES "${packages}")
    set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY OPTPIPE_LAYERS ${name})
endfunction()

# optpipe_has(<result> <target>): whether the target stands for something: FindMPI leaves one where it found nothing.
function(optpipe_has result target)
    set(${result} FALSE PARENT_SCOPE)
    if(TARGET ${target} AND NOT (target STREQUAL "MPI::MPI_CXX" AND DEFINED MPI_CXX_FOUND AND NOT MPI_CXX_FOUND))
        set(${result} TRUE PARENT_SCOPE)
    endif()
endfunction()

# optpipe_link_packages(<layer> <packages> <targets>)
function(optpipe_link_packages name packages targets)
    set(all_found TRUE)
    foreach(target IN LISTS targets)
        optpipe_has(found ${target})
        if(NOT found)
            set(all_found FALSE)
        endif()
    endforeach()
    if(all_found)
        target_link_libraries(optpipe_${name} INTERFACE ${targets})
        return()
    endif()
    set(missing "")
    foreach(package IN LISTS packages)
        if(NOT ${package}_FOUND)
            list(APPEND missing ${package})
        endif()
    endforeach()
    if(NOT missing) # found, but older than what has all the targets
        set(missing ${packages})
    endif()
    # CMake takes a name with `::` for a target, and stops with this name where there is none.
    optpipe_needs(sentence ${name} ${missing})
    target_link_libraries(
        optpipe_${name} INTERFACE "$<BUILD_INTERFACE:${sentence}>" "$<INSTALL_INTERFACE:${targets}>"
    )
endfunction()
