// The largest block requested from operator new since a test set this to 0 (gguf_hostile_test.cc replaces the
// operator).
#pragma once
#include <atomic>
#include <cstddef>

extern std::atomic<size_t> largest_allocation;
