#include <optpipe/version.hpp>

#include <cstdio>

int main() {
    static_assert(optpipe::version == OPTPIPE_VERSION);
    std::puts(optpipe::version_string);
}
