// The main of all tests that run on several ranks: the run fails when any rank failed, and rank 0
// says which. Ranks speak in pairs with a deadline, so that a rank that hangs or died ends the run
// as a failure and not as a second hang.
#include <gtest/gtest.h>
#include <mpi.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kReportsMax = std::chrono::seconds(20);
constexpr int kReportTag = 77;
constexpr int kVerdictTag = 78;

/// Replaces the printer on ranks other than 0: silent unless something fails.
class FailurePrinter final : public testing::EmptyTestEventListener {
 public:
  explicit FailurePrinter(int rank) : rank_(rank) {}

 private:
  void OnTestStart(const testing::TestInfo& info) override {
    test_ = std::string(info.test_suite_name()) + "." + info.name();
  }
  // Runs under the test framework's lock: it must not ask the framework anything.
  void OnTestPartResult(const testing::TestPartResult& part) override {
    if (!part.failed()) return;
    std::ostringstream line;
    line << "[rank " << rank_ << "] " << test_ << " "
         << (part.file_name() == nullptr ? "?" : part.file_name()) << ":" << part.line_number()
         << ": " << part.message() << "\n";
    std::fputs(line.str().c_str(), stderr);
    std::fflush(stderr);
  }

  int rank_;
  std::string test_;
};

/// False when the request did not complete in time.
bool complete(MPI_Request& request, Clock::time_point deadline) {
  for (int done = 0;;) {
    if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
    if (done != 0) return true;
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// Rank 0: hears the count of failures of each rank, and tells all whether all came.
int gather_reports(int own_failures, int size, bool& all_came) {
  const auto deadline = Clock::now() + kReportsMax;
  std::vector<int> failures(static_cast<std::size_t>(size), 0);
  std::vector<MPI_Request> requests(static_cast<std::size_t>(size), MPI_REQUEST_NULL);
  failures[0] = own_failures;
  for (int rank = 1; rank < size; ++rank) {
    MPI_Irecv(&failures[static_cast<std::size_t>(rank)], 1, MPI_INT, rank, kReportTag,
              MPI_COMM_WORLD, &requests[static_cast<std::size_t>(rank)]);
  }
  int ranks_failed = 0;
  all_came = true;
  for (int rank = 0; rank < size; ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    if (rank > 0 && !complete(requests[i], deadline)) {
      std::fprintf(stderr, "[mpi] rank %d did not report: it hangs or died\n", rank);
      all_came = false;
      ++ranks_failed;
    } else if (failures[i] > 0) {
      std::fprintf(stderr, "[mpi] rank %d: %d failed tests\n", rank, failures[i]);
      ++ranks_failed;
    }
  }
  int verdict = all_came ? 1 : 0;
  for (int rank = 1; rank < size; ++rank) {
    MPI_Isend(&verdict, 1, MPI_INT, rank, kVerdictTag, MPI_COMM_WORLD,
              &requests[static_cast<std::size_t>(rank)]);
    complete(requests[static_cast<std::size_t>(rank)], Clock::now() + std::chrono::seconds(1));
  }
  return ranks_failed;
}

/// Other ranks: true when rank 0 says that all came.
bool send_report(int own_failures) {
  const auto deadline = Clock::now() + 2 * kReportsMax;
  int verdict = 0;
  MPI_Request send = MPI_REQUEST_NULL;
  MPI_Request receive = MPI_REQUEST_NULL;
  MPI_Isend(&own_failures, 1, MPI_INT, 0, kReportTag, MPI_COMM_WORLD, &send);
  MPI_Irecv(&verdict, 1, MPI_INT, 0, kVerdictTag, MPI_COMM_WORLD, &receive);
  return complete(send, deadline) && complete(receive, deadline) && verdict == 1;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  int level = MPI_THREAD_SINGLE;
  if (MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS) return 3;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (rank != 0) {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailurePrinter(rank));
  }

  int failed = RUN_ALL_TESTS();
  const auto* unit_test = testing::UnitTest::GetInstance();
  const int failures = unit_test->failed_test_count();
  if (unit_test->test_to_run_count() == 0) {
    std::fprintf(stderr, "[rank %d] no test was run\n", rank);
    failed = 1;
  }
  bool all_came = true;
  if (rank == 0) {
    failed = gather_reports(failures + (failures == 0 ? failed : 0), size, all_came) > 0 ? 1 : 0;
  } else {
    all_came = send_report(failures + (failures == 0 ? failed : 0));
    failed = failed != 0 || !all_came ? 1 : 0;
  }
  std::fflush(nullptr);
  // MPI_Finalize may block when a rank is gone.
  if (!all_came) _exit(1);
  MPI_Finalize();
  return failed;
}
