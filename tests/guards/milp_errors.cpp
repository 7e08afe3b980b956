#include <optpipe/milp.hpp>

int main() {
    try {
        return static_cast<int>(optpipe::milp::parse_mps("", "file.mps").rows());
    } catch (const optpipe::input_error&) {
        return 1;
    } catch (const optpipe::error&) {
        return 2;
    }
}
