#include "model/speech/window_reader.h"

#include <algorithm>

#include "base/check.h"

namespace ingot {

void WindowReader::read_to(int64_t end) {
  while (!at_end_ && n_read() < end) {
    const size_t n_kept = samples_.size(), n_more = static_cast<size_t>(end - n_read());
    samples_.resize(n_kept + n_more);
    const size_t n = audio_.read(std::span(samples_).subspan(n_kept));
    samples_.resize(n_kept + n);
    at_end_ = n < n_more;
  }
}

std::span<const float> WindowReader::window(int64_t begin, int64_t n) {
  CHECK_GE(begin, first_);
  read_to(begin + n);
  const int64_t n_dropped = std::min(begin - first_, static_cast<int64_t>(samples_.size()));
  samples_.erase(samples_.begin(), samples_.begin() + n_dropped);
  first_ += n_dropped;
  return std::span<const float>(samples_).first(std::min(static_cast<size_t>(n), samples_.size()));
}

bool WindowReader::has(int64_t begin) {
  read_to(begin + 1);
  return n_read() > begin;
}

}  // namespace ingot
