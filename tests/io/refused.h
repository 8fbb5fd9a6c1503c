// What a refusal must be: an Error, soon, on one printable line, with no more memory than the file is large.
#pragma once
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace ingot {

// The message of the Error that f throws; a test failure when it throws none.
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
