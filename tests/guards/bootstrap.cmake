# cmake -P bootstrap.cmake -- <work directory> <cmake/bootstrap.cmake>
# Where packages are missing that can't be installed, the README's commands name them as the distribution's package
# manager does, and stop. Here there is nothing but a package manager, which fails.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/arguments.cmake)
list(GET arguments 0 work_dir)
list(GET arguments 1 bootstrap)

set(command "cmake_minimum_required(VERSION 3.25)\ninclude(\"${bootstrap}\")\noptpipe_provide(release)\n")
file(CONFIGURE OUTPUT ${work_dir}/provide.cmake CONTENT "${command}" @ONLY)

function(says manager sentence)
    set(programs ${work_dir}/${manager})
    file(REMOVE_RECURSE ${programs})
    file(CONFIGURE OUTPUT ${programs}/${manager} CONTENT "#!/bin/sh\nexit 1\n")
    file(CHMOD ${programs}/${manager} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
    execute_process(
        COMMAND ${CMAKE_COMMAND} -E env PATH=${programs} ${CMAKE_COMMAND} -P ${work_dir}/provide.cmake
        RESULT_VARIABLE status
        OUTPUT_VARIABLE output
        ERROR_VARIABLE output
    )
    string(FIND "${output}" "${sentence}\n" at)
    if(status EQUAL 0 OR at EQUAL -1)
        message(FATAL_ERROR "with ${manager} it doesn't say: ${sentence}\nbut (${status}): ${output}")
    endif()
endfunction()
set(debian "ninja-build g++ doctest-dev nlohmann-json3-dev libcli11-dev libeigen3-dev libtbb-dev zlib1g-dev")
says(apt-get "    sudo apt-get update && sudo apt-get install -y ${debian}")
set(devel "cli11-devel eigen3-devel tbb-devel zlib-devel")
says(dnf "    sudo dnf install -y ninja-build gcc-c++ doctest-devel json-devel ${devel}")
says(zypper "    sudo zypper install -y ninja gcc-c++ doctest-devel nlohmann_json-devel ${devel}")
says(pacman "    sudo pacman -S --needed ninja gcc doctest nlohmann-json cli11 eigen onetbb zlib")
says(none "Missing, by their Debian names: ${debian}. Install them, then run this again.")
