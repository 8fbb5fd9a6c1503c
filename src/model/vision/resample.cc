#include "model/vision/resample.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace ingot {
namespace {

constexpr double kPi = 3.14159265358979323846;

double sinc(double x) { return x == 0 ? 1 : std::sin(x * kPi) / (x * kPi); }

// Half the width of a filter, in result pixels.
double support_of(Filter filter) {
  switch (filter) {
    case Filter::kBox: return 0.5;
    case Filter::kBilinear:
    case Filter::kHamming: return 1;
    case Filter::kBicubic: return 2;
    case Filter::kLanczos: return 3;
    case Filter::kNearest: break;
  }
  return 0;
}

double weight_at(Filter filter, double x) {
  const double distance = std::fabs(x);
  switch (filter) {
    case Filter::kBox: return x > -0.5 && x <= 0.5 ? 1 : 0;
    case Filter::kBilinear: return std::max(0.0, 1 - distance);
    case Filter::kHamming: return distance < 1 ? sinc(x) * (0.54 + 0.46 * std::cos(kPi * x)) : 0;
    case Filter::kLanczos: return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0;
    case Filter::kBicubic: {
      constexpr double a = -0.5;
      if (distance < 1) return ((a + 2) * distance - (a + 3)) * distance * distance + 1;
      if (distance < 2) return (((distance - 5) * distance + 8) * distance - 4) * a;
      return 0;
    }
    case Filter::kNearest: break;
  }
  return 0;
}

// Weights have this many bits behind the point, as in Pillow: sums of 8-bit values then fit 32 bits.
constexpr int kWeightBits = 32 - 8 - 2;

// The source pixels of one result pixel.
struct Taps {
  int first = 0;
  std::vector<int32_t> weights;
};

std::vector<Taps> taps_of(int from, int to, Filter filter) {
  const double scale = static_cast<double>(from) / to, stretch = std::max(scale, 1.0);
  const double support = support_of(filter) * stretch, shrink = 1 / stretch;
  std::vector<Taps> all(static_cast<size_t>(to));
  for (int i = 0; i < to; ++i) {
    const double center = (i + 0.5) * scale;
    const int first = std::max(static_cast<int>(center - support + 0.5), 0);
    const int end = std::min(static_cast<int>(center + support + 0.5), from);
    std::vector<double> weights(static_cast<size_t>(end - first));
    double sum = 0;
    for (int k = 0; k < end - first; ++k)
      sum += weights[static_cast<size_t>(k)] = weight_at(filter, (k + first - center + 0.5) * shrink);
    Taps& taps = all[static_cast<size_t>(i)];
    taps.first = first;
    for (const double weight : weights) {
      const double share = sum != 0 ? weight / sum : weight;
      taps.weights.push_back(static_cast<int32_t>(share * (1 << kWeightBits) + (share < 0 ? -0.5 : 0.5)));
    }
  }
  return all;
}

uint8_t rounded(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> kWeightBits, 0, 255)); }

constexpr int32_t kHalf = 1 << (kWeightBits - 1);

Picture resized_rows(const Picture& in, int width, Filter filter) {
  Picture out{width, in.height, std::vector<uint8_t>(size_t{3} * width * in.height)};
  const std::vector<Taps> all = taps_of(in.width, width, filter);
  for (int y = 0; y < in.height; ++y) {
    const uint8_t* row = in.rgb.data() + size_t{3} * y * in.width;
    uint8_t* to = out.rgb.data() + size_t{3} * y * width;
    for (const Taps& taps : all) {
      int32_t sums[3] = {kHalf, kHalf, kHalf};
      const uint8_t* from = row + size_t{3} * taps.first;
      for (const int32_t weight : taps.weights)
        for (int c = 0; c < 3; ++c) sums[c] += weight * *from++;
      for (const int32_t sum : sums) *to++ = rounded(sum);
    }
  }
  return out;
}

Picture resized_columns(const Picture& in, int height, Filter filter) {
  const size_t row = size_t{3} * in.width;
  Picture out{in.width, height, std::vector<uint8_t>(row * height)};
  std::vector<int32_t> sums(row);
  uint8_t* to = out.rgb.data();
  for (const Taps& taps : taps_of(in.height, height, filter)) {
    std::ranges::fill(sums, kHalf);
    for (size_t k = 0; k < taps.weights.size(); ++k) {
      const uint8_t* from = in.rgb.data() + (taps.first + k) * row;
      for (size_t i = 0; i < row; ++i) sums[i] += taps.weights[k] * from[i];
    }
    for (const int32_t sum : sums) *to++ = rounded(sum);
  }
  return out;
}

// The source pixel of each result pixel. Sums of the scale, as in Pillow, decide where a place is between two pixels.
std::vector<int> nearest_of(int from, int to) {
  std::vector<int> all;
  const double scale = static_cast<double>(from) / to;
  double place = 0.5 * scale;
  for (int i = 0; i < to; ++i, place += scale) all.push_back(std::min(static_cast<int>(place), from - 1));
  return all;
}

Picture resized_nearest(const Picture& in, int width, int height) {
  Picture out{width, height, {}};
  out.rgb.reserve(size_t{3} * width * height);
  const std::vector<int> columns = nearest_of(in.width, width);
  for (const int row : nearest_of(in.height, height))
    for (const int column : columns) {
      const uint8_t* pixel = in.rgb.data() + size_t{3} * (size_t{1} * row * in.width + column);
      out.rgb.insert(out.rgb.end(), pixel, pixel + 3);
    }
  return out;
}

}  // namespace

Picture resized(const Picture& picture, int width, int height, Filter filter) {
  CHECK(width > 0 && height > 0 && picture.width > 0 && picture.height > 0);
  if (width == picture.width && height == picture.height) return picture;
  if (filter == Filter::kNearest) return resized_nearest(picture, width, height);
  if (width == picture.width) return resized_columns(picture, height, filter);
  if (height == picture.height) return resized_rows(picture, width, filter);
  // Values between the passes are rounded, so their order matters. It is Pillow's: columns first, if their length
  // shrinks by more than twice as much as that of rows.
  const int shrinks = picture.height - height;
  if (shrinks > 0 && shrinks > 2 * (picture.width - width))
    return resized_rows(resized_columns(picture, height, filter), width, filter);
  return resized_columns(resized_rows(picture, width, filter), height, filter);
}

Picture cropped(const Picture& picture, int x, int y, int width, int height) {
  CHECK(x >= 0 && y >= 0 && width > 0 && height > 0 && x + width <= picture.width && y + height <= picture.height);
  Picture out{width, height, std::vector<uint8_t>(size_t{3} * width * height)};
  for (int row = 0; row < height; ++row)
    std::memcpy(out.rgb.data() + size_t{3} * row * width,
                picture.rgb.data() + size_t{3} * (size_t{1} * (y + row) * picture.width + x), size_t{3} * width);
  return out;
}

}  // namespace ingot
