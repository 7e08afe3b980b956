#pragma once

inline std::string name() { return "a name"; }
