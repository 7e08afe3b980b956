inline bool is_small(int cells) { return cells <= 130; }
