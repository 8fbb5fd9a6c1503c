// The rules for a refusal: an Error, fast, in one printable line, with no more memory than the size of the file.
#pragma once
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace ingot {

// The message of the Error that f throws; the test fails if f does not throw.
template <class F>
std::string refusal(const F& f) {
  try {
    f();
  } catch (const Error& error) {
    const std::string message = error.what();
    for (char c : message) {
      EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 && c != 0x7F) << "control byte in: " << message;
    }
    EXPECT_LT(message.size(), 2000u) << message;
    return message;
  }
  ADD_FAILURE() << "was accepted";
  return "";
}

}  // namespace ingot
