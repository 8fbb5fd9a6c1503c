// The values of --device, on any machine: GPU numbers, invalid numbers, and the message if there are fewer GPUs.
#include "backend/device_name.h"

#include <gmock/gmock.h>

#include <string>

#include "backend/cuda/create_cuda.h"
#include "base/error.h"

namespace ingot {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

template <class F>
std::string fault_of(F&& f) {
  try {
    f();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(DeviceName, NumbersOfGpus) {
  for (const auto& [name, index] : {std::pair{"cuda", 0}, {"cuda:0", 0}, {"cuda:1", 1}, {"cuda:12", 12}}) {
    EXPECT_TRUE(is_cuda(name)) << name;
    EXPECT_EQ(cuda_index(name), index) << name;
  }
  for (const char* name : {"cpu", "ref", "auto", "cud", "cuda1", "CUDA:1", ""}) EXPECT_FALSE(is_cuda(name)) << name;
}

TEST(DeviceName, WhatIsNoNumberIsTheUsersFault) {
  for (const char* name : {"cuda:", "cuda:x", "cuda:-1", "cuda:+1", "cuda: 1", "cuda:1 ", "cuda:1x", "cuda:0x1",
                           "cuda:99999999999", "cuda:1:2"}) {
    EXPECT_THROW(cuda_index(name), UsageError) << name;
    EXPECT_THROW(create_backend({.device = name}), UsageError) << name;
    EXPECT_THAT(fault_of([&] { create_backend({.device = name}); }), HasSubstr("cuda:N"))
        << name;  // does not say "no GPU"
  }
}

TEST(DeviceName, SaysHowManyGpusThereAre) {
  EXPECT_NO_THROW(check_cuda_index(1, 2));
  EXPECT_THAT(fault_of([] { check_cuda_index(9, 2); }),
              AllOf(HasSubstr("cuda:9"), HasSubstr("has 2"), HasSubstr("cuda:0 to cuda:1")));
  EXPECT_THAT(fault_of([] { check_cuda_index(1, 1); }), AllOf(HasSubstr("has 1"), Not(HasSubstr(" to "))));
  EXPECT_THROW(create_cuda_backend({.device = "cuda:1000000"}), UsageError);
}

}  // namespace
}  // namespace ingot
