# Knows Debian's names alone.
function(optpipe_provide)
    message(FATAL_ERROR "Install them:\n\n    sudo apt-get update && sudo apt-get install -y ninja-build g++ doctest-dev \
nlohmann-json3-dev libcli11-dev libeigen3-dev libtbb-dev zlib1g-dev\n")
endfunction()
