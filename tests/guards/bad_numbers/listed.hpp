inline double best() {
    for (const double factor : {1.15, 2.0})
        if (factor > 1.0) return factor;
    return 0.5;
}
