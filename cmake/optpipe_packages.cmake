# What to install for a package: the end of every sentence that says what is missing, here and in the installed package.
set(_optpipe_install_CUDAToolkit "install the CUDA Toolkit, or set CUDAToolkit_ROOT")
set(_optpipe_install_Eigen3 "apt-get install libeigen3-dev")
set(_optpipe_install_MPI "apt-get install libopenmpi-dev")
set(_optpipe_install_NCCL "apt-get install libnccl-dev, or set NCCL_ROOT")
set(_optpipe_install_TBB "apt-get install libtbb-dev")
set(_optpipe_install_Threads "enable C or CXX, and install the C library's headers")
set(_optpipe_install_ZLIB "apt-get install zlib1g-dev")
set(_optpipe_install_nlohmann_json "apt-get install nlohmann-json3-dev")

# optpipe_needs(<result> <layer> <package>...): what is to be said where a layer's packages are missing.
function(optpipe_needs result layer)
    set(needs "")
    foreach(package IN LISTS ARGN)
        list(APPEND needs "${package} (${_optpipe_install_${package}})")
    endforeach()
    list(JOIN needs ", " needs)
    set(${result} "optpipe::${layer} needs ${needs}" PARENT_SCOPE)
endfunction()
