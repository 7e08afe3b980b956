#include "execution/quick_adaptive.hpp"

#include "optpipe/schedule/builders/adaptive.hpp"

optpipe::outcome<optpipe::order> quick_adaptive_builder::operator()(const optpipe::problem& p) const {
    optpipe::adaptive_builder<> quick;
    quick.effort = 1000;
    return quick(p);
}
