# The target `reference`: the public headers as pages in build/<preset>/reference, by Doxygen, where that is installed. A
# warning (a name in a comment that there isn't, a parameter that is another's) is an error.
find_package(Doxygen 1.9.4 QUIET)
if(NOT DOXYGEN_FOUND)
    return()
endif()
set(DOXYGEN_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/reference)
set(DOXYGEN_GENERATE_LATEX NO)
set(DOXYGEN_HAVE_DOT NO)
set(DOXYGEN_QUIET YES)
set(DOXYGEN_WARN_AS_ERROR FAIL_ON_WARNINGS)
set(DOXYGEN_WARN_IF_UNDOCUMENTED NO) # a name without a contract has no comment
set(DOXYGEN_EXTRACT_ALL YES)
set(DOXYGEN_EXCLUDE_SYMBOLS *detail*)
set(DOXYGEN_STRIP_FROM_PATH ${PROJECT_SOURCE_DIR}/include)
set(DOXYGEN_STRIP_FROM_INC_PATH ${PROJECT_SOURCE_DIR}/include)
set(DOXYGEN_USE_MDFILE_AS_MAINPAGE ${PROJECT_SOURCE_DIR}/include/optpipe/README.md)
set(DOXYGEN_FILE_PATTERNS *.hpp *.md)
set(DOXYGEN_MACRO_EXPANSION YES)
set(DOXYGEN_PREDEFINED "OPTPIPE_DEFINES(unit)=0" OPTPIPE_HAS_JSON=1 OPTPIPE_HAS_MILP=1 OPTPIPE_HAS_ZLIB=1)
doxygen_add_docs(
    reference ${PROJECT_SOURCE_DIR}/include
    COMMENT "Reference of the public headers"
)
