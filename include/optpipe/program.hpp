#pragma once

#include "optpipe/program/check.hpp"
#include "optpipe/program/ir.hpp"
#include "optpipe/program/issue_order.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/program/planned_message.hpp"
#include "optpipe/program/write_program.hpp"
