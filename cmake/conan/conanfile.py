# conan create cmake/conan
#
# Packages this checkout. Packages of the distribution instead of ConanCenter's (apt-get install libeigen3-dev libtbb-dev
# zlib1g-dev nlohmann-json3-dev libcli11-dev):
#
#     conan create cmake/conan --profile:host default --profile:host cmake/conan/system_packages
import os
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load, rmdir

required_conan_version = ">=2.0"


class OptPipe(ConanFile):
    name = "optpipe"
    description = "Plans pipeline-parallel training within a memory limit, with a proof"
    license = "Apache-2.0"
    topics = ("pipeline-parallelism", "scheduling", "mixed-integer-programming", "training")
    package_type = "static-library"
    settings = "os", "arch", "compiler", "build_type"
    # compiled=False: headers alone, and whoever includes plan() compiles the solver. program: also the program optpipe,
    # with its completions and manual page.
    options = {"compiled": [True, False], "program": [True, False], "fPIC": [True, False]}
    default_options = {"compiled": True, "program": True, "fPIC": True}

    @property
    def _checkout(self):
        return os.path.join(self.recipe_folder, "..", "..")

    @property
    def _has_program(self):
        return bool(self.options.get_safe("program"))

    def set_version(self):
        text = load(self, os.path.join(self._checkout, "include", "optpipe", "version.hpp"))
        part = lambda name: re.search(rf"OPTPIPE_VERSION_{name} (\d+)", text).group(1)
        self.version = ".".join(part(name) for name in ("MAJOR", "MINOR", "PATCH"))

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "include/*", "cmake/*", "schemas/*", "examples/CMakeLists.txt",
                        "examples/optpipe/*"):
            copy(self, pattern, src=self._checkout, dst=self.export_sources_folder)

    def config_options(self):
        if self.settings.os == "Windows":
            del self.options.fPIC

    def configure(self):
        if not self.options.compiled:
            self.package_type = "header-library"
            self.options.rm_safe("fPIC")
            self.options.rm_safe("program")

    def layout(self):
        cmake_layout(self)

    def requirements(self):
        for package in ("eigen/[>=3.4 <4]", "onetbb/[>=2021.8 <2023]", "zlib/[>=1.2.11 <2]", "nlohmann_json/[>=3.9 <4]"):
            self.requires(package, transitive_headers=True, transitive_libs=True)

        if self._has_program:
            self.requires("cli11/[>=2.1 <3]", visible=False)

    def package_id(self):
        if not self.info.options.compiled:
            self.info.clear()

    def validate(self):
        check_min_cppstd(self, 20)

    def generate(self):
        toolchain = CMakeToolchain(self)
        for part in ("TESTS", "BENCH"):
            toolchain.cache_variables[f"OPTPIPE_BUILD_{part}"] = "OFF"
        toolchain.cache_variables["OPTPIPE_BUILD_EXAMPLES"] = "PROGRAM" if self._has_program else "OFF"
        for device in ("CUDA", "NCCL", "MPI"):
            toolchain.cache_variables[f"OPTPIPE_WITH_{device}"] = "OFF"
        toolchain.cache_variables["OPTPIPE_BUILD_COMPILED"] = "ON" if self.options.compiled else "OFF"
        toolchain.cache_variables["OPTPIPE_BUILD_C"] = "OFF"  # the package is a static library, which has these functions
        toolchain.generate()
        CMakeDeps(self).generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", src=self.source_folder, dst=os.path.join(self.package_folder, "licenses"))
        rmdir(self, os.path.join(self.package_folder, "share", "doc"))

    def package_info(self):
        # The package's own files for CMake have a component per layer; Conan writes none.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("share", "cmake", "optpipe")]
        self.cpp_info.set_property("pkg_config_name", "optpipe-compiled" if self.options.compiled else "optpipe")
        self.cpp_info.defines = ["OPTPIPE_HAS_JSON=1", "OPTPIPE_HAS_MILP=1", "OPTPIPE_HAS_ZLIB=1"]
        if self.options.compiled:
            self.cpp_info.libs = ["optpipe"]
            self.cpp_info.defines.append("OPTPIPE_COMPILED=1")
        else:
            self.cpp_info.libdirs = []
        self.cpp_info.bindirs = ["bin"] if self._has_program else []
        if self.settings.get_safe("os") in ("Linux", "FreeBSD"):
            self.cpp_info.system_libs = ["pthread"]
