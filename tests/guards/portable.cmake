# cmake -P portable.cmake -- <include directory>
# The headers are standard C++: no word that only some compilers know, but what a sanitizer is told.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/arguments.cmake)
set(include_dir ${arguments})

set(words "__(attribute|builtin|declspec|restrict|forceinline|int128|typeof|extension)")
set(found "")
file(GLOB_RECURSE headers RELATIVE ${include_dir} ${include_dir}/*.hpp)
foreach(header IN LISTS headers)
    file(STRINGS ${include_dir}/${header} lines REGEX "${words}")
    list(FILTER lines EXCLUDE REGEX "no_sanitize")
    foreach(line IN LISTS lines)
        string(APPEND found "${header}: ${line}\n")
    endforeach()
endforeach()
if(found)
    message(FATAL_ERROR "not standard C++:\n${found}")
endif()
