struct effort {
    int first;
};
inline effort usual() { return {.first = 50'000}; }
