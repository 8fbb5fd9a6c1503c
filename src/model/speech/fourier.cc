#include "model/speech/fourier.h"

#include <array>
#include <cmath>
#include <numbers>

namespace ingot {
namespace {

struct Complex {
  double re, im;
};
Complex operator+(Complex a, Complex b) { return {a.re + b.re, a.im + b.im}; }
Complex operator-(Complex a, Complex b) { return {a.re - b.re, a.im - b.im}; }
Complex operator*(Complex a, Complex b) { return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }
Complex operator*(double a, Complex b) { return {a * b.re, a * b.im}; }
Complex times_minus_i(Complex a) { return {a.im, -a.re}; }

// exp(-2 pi i k / 400)
const std::array<Complex, kFourierLength>& roots() {
  static const auto table = [] {
    std::array<Complex, kFourierLength> all{};
    for (int k = 0; k < kFourierLength; ++k) {
      const double angle = -2 * std::numbers::pi * k / kFourierLength;
      all[static_cast<size_t>(k)] = {std::cos(angle), std::sin(angle)};
    }
    return all;
  }();
  return table;
}

// The transforms of 4 and 5 numbers.
void transform(std::array<Complex, 4>& v) {
  const Complex a = v[0] + v[2], b = v[0] - v[2], c = v[1] + v[3], d = times_minus_i(v[1] - v[3]);
  v = {a + c, b + d, a - c, b - d};
}

void transform(std::array<Complex, 5>& v) {
  constexpr double c1 = 0.30901699437494742410, c2 = -0.80901699437494742410;  // cos 2pi/5, cos 4pi/5
  constexpr double s1 = 0.95105651629515357212, s2 = 0.58778525229247312917;   // sin 2pi/5, sin 4pi/5
  const Complex a = v[1] + v[4], b = v[2] + v[3], d = times_minus_i(v[1] - v[4]), e = times_minus_i(v[2] - v[3]);
  const Complex even1 = v[0] + c1 * a + c2 * b, even2 = v[0] + c2 * a + c1 * b;
  const Complex odd1 = s1 * d + s2 * e, odd2 = s2 * d - s1 * e;
  v = {v[0] + a + b, even1 + odd1, even2 + odd2, even2 - odd2, even1 - odd1};
}

// One stage: n is the length that is left, s the stride of what is done. n * s = 400.
template <int radix>
void stage(const FourierRows& x, FourierRows& y, int n, int s) {
  const int m = n / radix, width = s * kFourierLanes;
  for (int p = 0; p < m; ++p) {
    std::array<Complex, radix> turns;
    for (int j = 0; j < radix; ++j) turns[static_cast<size_t>(j)] = roots()[static_cast<size_t>(p * j * s)];
    const double *xr = x.re + p * width, *xi = x.im + p * width;
    double *yr = y.re + p * radix * width, *yi = y.im + p * radix * width;
    for (int q = 0; q < width; ++q) {
      std::array<Complex, radix> v;
      for (int k = 0; k < radix; ++k) v[static_cast<size_t>(k)] = {xr[k * m * width + q], xi[k * m * width + q]};
      transform(v);
      for (int j = 0; j < radix; ++j) {
        const Complex turned = v[static_cast<size_t>(j)] * turns[static_cast<size_t>(j)];
        yr[j * width + q] = turned.re, yi[j * width + q] = turned.im;
      }
    }
  }
}

}  // namespace

void fourier_400(FourierRows& x, FourierRows& scratch) {
  stage<4>(x, scratch, 400, 1);
  stage<4>(scratch, x, 100, 4);
  stage<5>(x, scratch, 25, 16);
  stage<5>(scratch, x, 5, 80);
}

}  // namespace ingot
