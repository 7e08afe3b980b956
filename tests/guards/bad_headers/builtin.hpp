#pragma once

inline int bits(unsigned long long word) { return __builtin_popcountll(word); }
