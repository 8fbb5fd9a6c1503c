#include "backend/cpu/step_threads.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

namespace ingot::cpu {
namespace {

// A folder that ends with the test.
struct ThreadsFolder {
  ThreadsFolder() { std::filesystem::remove_all(path); }
  ~ThreadsFolder() { std::filesystem::remove_all(path); }
  size_t n_files() const {
    std::error_code none;
    size_t n = 0;
    for (const auto& entry : std::filesystem::directory_iterator(path, none)) n += entry.is_regular_file();
    return n;
  }
  const std::filesystem::path path =
      std::filesystem::path(testing::TempDir()) /
      ("threads_" + std::to_string(::getpid()) + "_" + testing::UnitTest::GetInstance()->current_test_info()->name());
};

StepThreads threads_of(const ThreadsFolder& folder, const std::string& model, int most = 8) {
  return {most, folder.path.string(), model};
}

constexpr char kProgram = 0, kOther = 0;

void run_steps(StepThreads& threads, int n_tokens, int n_steps, const std::function<double(int)>& seconds,
               const void* program = &kProgram) {
  for (int i = 0; i < n_steps; ++i) threads.add(program, n_tokens, seconds(threads.n_threads(program, n_tokens)));
}

constexpr int kEnough = 4 * ThreadChoice::kRounds;
double slower_with_more(int n) { return n; }
double faster_with_more(int n) { return 1.0 / n; }

TEST(StepThreads, EachNumberOfTokensChooses) {
  const ThreadsFolder folder;
  StepThreads threads = threads_of(folder, "m");
  run_steps(threads, 1, kEnough, slower_with_more);
  run_steps(threads, 2, kEnough, faster_with_more);
  EXPECT_EQ(threads.n_threads(&kProgram, 1), 1);
  EXPECT_EQ(threads.n_threads(&kProgram, 2), 8);
  EXPECT_EQ(threads.n_threads(&kProgram, 3), 8) << "which begins with all";
}

// Such as a model and its draft head, whose steps alternate.
TEST(StepThreads, EachProgramChooses) {
  const ThreadsFolder folder;
  {
    StepThreads threads = threads_of(folder, "m");
    for (int i = 0; i < kEnough; ++i) {
      run_steps(threads, 1, 1, faster_with_more);
      run_steps(threads, 1, 1, slower_with_more, &kOther);
    }
    EXPECT_EQ(threads.n_threads(&kProgram, 1), 8);
    EXPECT_EQ(threads.n_threads(&kOther, 1), 1);
  }
  StepThreads next = threads_of(folder, "m");
  EXPECT_EQ(next.n_threads(&kProgram, 1), 8);
  EXPECT_EQ(next.n_threads(&kOther, 1), 1);
}

TEST(StepThreads, LargeStepsUseAllThreads) {
  const ThreadsFolder folder;
  StepThreads threads = threads_of(folder, "m");
  run_steps(threads, StepThreads::kMostTokens + 1, kEnough, slower_with_more);
  EXPECT_EQ(threads.n_threads(&kProgram, StepThreads::kMostTokens + 1), 8);
  EXPECT_EQ(folder.n_files(), 0u);
}

TEST(StepThreads, TheNextRunBeginsWithTheChoice) {
  const ThreadsFolder folder;
  {
    StepThreads threads = threads_of(folder, "m");
    run_steps(threads, 1, kEnough, slower_with_more);
    run_steps(threads, 2, kEnough, faster_with_more);
  }
  EXPECT_EQ(folder.n_files(), 1u) << "all threads need no file";
  EXPECT_EQ(threads_of(folder, "m").n_threads(&kProgram, 1), 1);
  EXPECT_EQ(threads_of(folder, "another").n_threads(&kProgram, 1), 8);
  EXPECT_EQ(threads_of(folder, "m", 4).n_threads(&kProgram, 1), 4) << "of another pool";
}

TEST(StepThreads, AChoiceThatNoLongerHoldsIsReplaced) {
  const ThreadsFolder folder;
  {
    StepThreads threads = threads_of(folder, "m");
    run_steps(threads, 1, kEnough, slower_with_more);
    run_steps(threads, 1, static_cast<int>(ThreadChoice::kAgain) + kEnough, faster_with_more);
    EXPECT_EQ(threads.n_threads(&kProgram, 1), 8);
  }
  EXPECT_EQ(threads_of(folder, "m").n_threads(&kProgram, 1), 8);
}

TEST(StepThreads, WithoutAFolderNothingIsKept) {
  StepThreads threads(8, "", "m");
  run_steps(threads, 1, kEnough, slower_with_more);
  EXPECT_EQ(threads.n_threads(&kProgram, 1), 1);
}

}  // namespace
}  // namespace ingot::cpu
