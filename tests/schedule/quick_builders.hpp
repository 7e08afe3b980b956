#pragma once

#include "optpipe/schedule/builders/all.hpp"

/// Every builder, with little effort if it searches. For tests of the use of schedules, not of their quality.
template <class Visitor> void for_each_quick_builder(Visitor visit) {
    optpipe::for_each_builder([&](auto build) {
        if constexpr (requires { build.effort = 1000; }) build.effort = 1000;
        visit(build);
    });
}
