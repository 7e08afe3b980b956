#pragma once

#include "optpipe/schedule/builders/all.hpp"

/// Every builder; those that search do so with little effort. For tests of what is done with schedules, not of how good
/// they are.
template <class Visitor> void for_each_quick_builder(Visitor visit) {
    optpipe::for_each_builder([&](auto build) {
        if constexpr (requires { build.effort = 1000; }) build.effort = 1000;
        visit(build);
    });
}
