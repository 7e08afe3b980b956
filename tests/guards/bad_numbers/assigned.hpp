struct search {
    void deepen() { depth_ = 130; }
    int depth_ = 64; // has a name
};
