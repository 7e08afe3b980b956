import os

from conan import ConanFile
from conan.tools.build import can_run
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout


class OptPipeTest(ConanFile):
    settings = "os", "arch", "compiler", "build_type"

    def requirements(self):
        self.requires(self.tested_reference_str, run=True)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        CMakeDeps(self).generate()
        toolchain = CMakeToolchain(self)
        toolchain.user_presets_path = False  # the checkout stays as it is
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def test(self):
        if can_run(self):
            self.run(os.path.join(self.cpp.build.bindir, "schedule"), env="conanrun")
            if self.dependencies["optpipe"].options.compiled:
                self.run(os.path.join(self.cpp.build.bindir, "plan"), env="conanrun")
            if self.dependencies["optpipe"].options.get_safe("program"):
                self.run("optpipe --version", env="conanrun")
