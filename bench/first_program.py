#!/usr/bin/env python3
"""What README's first program costs the compiler, headers alone and against the compiled library, and what it prints; and
what a program costs that reads its problem from a file, and includes only what it needs.

    bench/first_program.py --build build/release [--work FOLDER]

Installs the build into FOLDER, and builds the programs there with CMake as a user does, -O2. Processor time and peak memory
are those of the compiler's call for the one file.
"""
import argparse
import json
import os
import re
import resource
import subprocess
import sys

CMAKE_LISTS = """cmake_minimum_required(VERSION 3.25)
project(first_program LANGUAGES CXX)
find_package(optpipe REQUIRED COMPONENTS optpipe compiled)
function(program name source target)
    add_executable(${name} ${source})
    target_link_libraries(${name} PRIVATE optpipe::${target})
    set_target_properties(${name} PROPERTIES RULE_LAUNCH_COMPILE "${PYTHON} ${SCRIPT} --measure ${name}.json")
endfunction()
program(headers main.cpp optpipe)
program(linked main.cpp compiled)
program(lean lean.cpp compiled)
"""
LEAN = """#include <optpipe/io/json_problem.hpp>
#include <optpipe/planner/plan.hpp>
#include <iostream>

int main(int, char** arguments) {
    if (const auto planned = optpipe::plan(optpipe::read_problem(arguments[1]))) std::cout << planned->objective.value();
}
"""
PROGRAMS = (("headers", "`optpipe::optpipe`"), ("linked", "`optpipe::compiled`"),
            ("lean", "`optpipe::compiled`, with only `planner/plan.hpp` and `io/json_problem.hpp`"))


def measured(out, command):
    """Runs the compiler's command, and leaves in `out` what it took."""
    status = subprocess.run(command, check=False).returncode
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(out, "w") as file:
        json.dump({"seconds": used.ru_utime + used.ru_stime, "gigabytes": used.ru_maxrss * 1024 / 1e9}, file)
    return status


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")
    return done.stdout


def main():
    if sys.argv[1:2] == ["--measure"]:
        return measured(sys.argv[2], sys.argv[3:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--work", default="build/results/first_program")
    options = parser.parse_args()
    source = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    work = os.path.abspath(options.work)
    os.makedirs(work, exist_ok=True)
    with open(os.path.join(source, "README.md")) as file:
        program = next(code for code in re.findall(r"```cpp\n(.*?)```", file.read(), re.DOTALL) if "int main" in code)
    for name, text in (("main.cpp", program), ("lean.cpp", LEAN), ("CMakeLists.txt", CMAKE_LISTS)):
        with open(os.path.join(work, name), "w") as file:
            file.write(text)
    build = os.path.join(work, "build")
    run("cmake", "--install", options.build, "--component", "optpipe_development",
        "--prefix", os.path.join(work, "installed"))
    run("cmake", "-S", work, "-B", build, "-DCMAKE_CXX_FLAGS=-O2", "-DCMAKE_BUILD_TYPE=None",
        "-DCMAKE_CXX_COMPILER_LAUNCHER=",
        f"-DCMAKE_PREFIX_PATH={work}/installed", f"-DPYTHON={sys.executable}", f"-DSCRIPT={os.path.abspath(__file__)}")
    run("cmake", "--build", build, "--clean-first")
    print("| target | compiling takes | peak memory |\n| --- | --- | --- |")
    for name, text in PROGRAMS:
        with open(os.path.join(build, f"{name}.json")) as file:
            used = json.load(file)
        print(f"| {text} | {used['seconds']:.1f} s | {used['gigabytes']:.2f} GB |")
    print(f"\nIt prints: {run(os.path.join(build, 'linked')).strip()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
