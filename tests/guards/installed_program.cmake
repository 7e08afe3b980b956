# cmake -DBINARY_DIR=... -DWORK_DIR=... -P installed_program.cmake
# The program is installed with its manual page and completions, which are what it writes itself.
cmake_minimum_required(VERSION 3.25)

file(REMOVE_RECURSE ${WORK_DIR})
execute_process(
    COMMAND ${CMAKE_COMMAND} --install ${BINARY_DIR} --prefix ${WORK_DIR} --component optpipe_cli
    OUTPUT_QUIET
    COMMAND_ERROR_IS_FATAL ANY
)
file(GLOB_RECURSE programs ${WORK_DIR}/*/optpipe)
list(FILTER programs EXCLUDE REGEX completions)
function(is_installed name)
    file(GLOB_RECURSE files ${WORK_DIR}/share/${name})
    execute_process(COMMAND ${programs} ${ARGN} OUTPUT_VARIABLE own COMMAND_ERROR_IS_FATAL ANY)
    if(files STREQUAL "")
        message(FATAL_ERROR "${name} isn't installed")
    endif()
    file(READ ${files} text)
    if(NOT text STREQUAL own)
        message(FATAL_ERROR "${name} isn't what the program writes")
    endif()
endfunction()
is_installed(bash-completion/completions/optpipe completion bash)
is_installed(zsh/site-functions/_optpipe completion zsh)
is_installed(fish/vendor_completions.d/optpipe.fish completion fish)
is_installed(man/man1/optpipe.1 man-page)
