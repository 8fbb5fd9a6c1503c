// The driver's answers, with a fake driver library.
#include "backend/nvidia_driver.h"

#include <gmock/gmock.h>

#include <random>

#include "base/shared_library.h"
#include "test_seed.h"

namespace ingot {
namespace {

using ::testing::HasSubstr;

NvidiaDriver read_fake(int n_gpus, int version, int status) {
  void* library = open_library(INGOT_FAKE_DRIVER);
  EXPECT_NE(library, nullptr);
  reinterpret_cast<void (*)(int, int, int)>(function_of(library, "fake_driver_set"))(n_gpus, version, status);
  return read_nvidia_driver(INGOT_FAKE_DRIVER);
}

TEST(NvidiaDriver, ListsEveryGpu) {
  std::mt19937 random(test_seed());
  for (int i = 0; i < 20; ++i) {
    const int n = std::uniform_int_distribution(1, 9)(random), major = std::uniform_int_distribution(11, 14)(random),
              minor = std::uniform_int_distribution(0, 9)(random);
    const NvidiaDriver driver = read_fake(n, 1000 * major + 10 * minor, 0);
    EXPECT_EQ(driver.why_none, "");
    EXPECT_EQ(driver.cuda_major, major);
    EXPECT_EQ(driver.cuda_minor, minor);
    ASSERT_EQ(driver.gpus.size(), static_cast<size_t>(n));
    for (int g = 0; g < n; ++g) {
      const NvidiaGpu& gpu = driver.gpus[static_cast<size_t>(g)];
      EXPECT_THAT(gpu.name, HasSubstr(" " + std::to_string(g)));
      EXPECT_EQ(gpu.name.find('\x1b'), std::string::npos) << "a name is printed, so it has no control characters";
      EXPECT_EQ(gpu.major, 9);
      EXPECT_EQ(gpu.minor, g);
      EXPECT_EQ(gpu.memory_bytes, size_t{1} << (30 + g));
    }
  }
}

TEST(NvidiaDriver, SaysWhyThereIsNoGpu) {
  EXPECT_THAT(read_fake(0, 13000, 0).why_none, HasSubstr("finds no GPU"));
  EXPECT_THAT(read_fake(2, 13000, 999).why_none, HasSubstr("cannot start (CUDA error 999)"));
  EXPECT_TRUE(read_fake(2, 13000, 999).gpus.empty());
  EXPECT_THAT(read_nvidia_driver("libabsent-driver.so").why_none, HasSubstr("no NVIDIA driver"));
  EXPECT_THAT(read_nvidia_driver("libm.so.6").why_none, HasSubstr("no NVIDIA driver")) << "another library";
}

}  // namespace
}  // namespace ingot
