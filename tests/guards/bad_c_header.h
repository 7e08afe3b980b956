#include <string>

bool optpipe_plan(const std::string& problem);
