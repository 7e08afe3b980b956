# An overlay port: it builds the checkout that it lies in.
#     vcpkg install optpipe --overlay-ports=cmake/vcpkg
# vcpkg doesn't see changes of the sources: `vcpkg remove optpipe`, then install with --no-binarycaching.
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

# optpipe::compiled is a static library.
vcpkg_check_linkage(ONLY_STATIC_LIBRARY)
vcpkg_cmake_configure(
    SOURCE_PATH "${SOURCE_PATH}"
    OPTIONS
        -DOPTPIPE_BUILD_TESTS=OFF
        -DOPTPIPE_BUILD_EXAMPLES=OFF
        -DOPTPIPE_BUILD_BENCH=OFF
        -DOPTPIPE_BUILD_COMPILED=ON
        -DOPTPIPE_BUILD_C=OFF
        -DOPTPIPE_WITH_CUDA=OFF
        -DOPTPIPE_WITH_NCCL=OFF
        -DOPTPIPE_WITH_MPI=OFF
)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH share/cmake/optpipe)
file(
    REMOVE_RECURSE
    "${CURRENT_PACKAGES_DIR}/debug/include"
    "${CURRENT_PACKAGES_DIR}/debug/share"
    "${CURRENT_PACKAGES_DIR}/share/doc"
)
vcpkg_fixup_pkgconfig()
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
