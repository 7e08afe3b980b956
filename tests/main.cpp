// Runs the cases that the command line selects. A case that checks nothing is named, since its "passed" would say
// nothing; if none of the selected cases checks anything, the test counts as skipped.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <iostream>

namespace {

constexpr int skipped = 77; // SKIP_RETURN_CODE of tests/CMakeLists.txt

/// Counts what the selected cases check.
class assertion_count : public doctest::IReporter {
public:
    explicit assertion_count(const doctest::ContextOptions&) {}

    static bool is_zero() noexcept { return cases_ > 0 && assertions_ == 0; }

    void test_case_start(const doctest::TestCaseData& started) override { case_ = &started; }

    void test_case_end(const doctest::CurrentTestCaseStats& ended) override {
        ++cases_;
        assertions_ += ended.numAssertsCurrentTest;
        if (ended.numAssertsCurrentTest == 0 && !ended.failure_flags)
            std::cout << "skipped: '" << case_->m_name << "' checks nothing here\n";
    }

    void report_query(const doctest::QueryData&) override {}
    void test_run_start() override {}
    void test_run_end(const doctest::TestRunStats&) override {}
    void test_case_reenter(const doctest::TestCaseData&) override {}
    void test_case_exception(const doctest::TestCaseException&) override {}
    void subcase_start(const doctest::SubcaseSignature&) override {}
    void subcase_end() override {}
    void log_assert(const doctest::AssertData&) override {}
    void log_message(const doctest::MessageData&) override {}
    void test_case_skipped(const doctest::TestCaseData&) override {}

private:
    const doctest::TestCaseData* case_ = nullptr;
    static inline int cases_ = 0;
    static inline int assertions_ = 0;
};

REGISTER_LISTENER("assertion_count", 1, assertion_count);

TEST_CASE("a case that checks nothing" * doctest::skip()) {} // for guard.checks_nothing.bites

} // namespace

int main(int argc, char** argv) {
    doctest::Context context{argc, argv};
    const int status = context.run();
    return status == 0 && !context.shouldExit() && assertion_count::is_zero() ? skipped : status;
}
