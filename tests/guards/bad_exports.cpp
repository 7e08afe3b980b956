extern "C" int optpipe_abi() { return 1; }
int no_function_of_c() { return 0; }
