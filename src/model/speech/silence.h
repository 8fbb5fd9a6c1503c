// Sounds and texts that are no speech. Speech models invent words for silence, so a window without sound is not decoded,
// and a segment that says nothing is left out.
#pragma once
#include <span>
#include <string_view>

namespace ingot {

// The level of the loudest 30 ms, in decibels below the largest sine (dBFS). -infinity for zeros.
double loudest_level(std::span<const float> samples);

// Whether a text has a letter or a digit of any script. Punctuation and musical notes alone say nothing.
bool says_something(std::string_view text);

}  // namespace ingot
