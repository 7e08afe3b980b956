#pragma once

struct name {};

inline name a_name() { return {}; }
