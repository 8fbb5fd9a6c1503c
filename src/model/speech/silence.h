// Sounds and texts that are no speech. Speech models invent words for silence, so windows begin where there is sound, and
// a segment that says nothing is left out.
#pragma once
#include <cstddef>
#include <span>
#include <string_view>

namespace ingot {

// The number of samples before the first 30 ms that are at least as loud as `level`, in decibels below the largest sine
// (dBFS). If no 30 ms are that loud, this is the number of all samples.
size_t quiet_beginning(std::span<const float> samples, double level);

// Whether a text has a letter or a digit of any script. Punctuation and musical notes alone say nothing.
bool says_something(std::string_view text);

}  // namespace ingot
