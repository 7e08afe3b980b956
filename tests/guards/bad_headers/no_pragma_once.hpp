struct item {};
