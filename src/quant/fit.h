// Fits one group of weights to a format's levels: finds the scale (and minimum) that minimises the sum of w * (x -
// value)^2, where w is the importance of each element. For encode.cc.
//
// For given codes, the best scale is a division (least squares). For a given scale, the best codes are the nearest
// levels. The search for the best pair starts with scales that map the group's range to the outermost levels, or a few
// small steps inside or outside of them. Each start is fitted once, and the best result again until it stops improving.
#pragma once
#include "quant/levels.h"

namespace ingot::quant {

// How far beyond the outermost level the range may reach, in levels.
constexpr float kFirstStep = -1.0f, kLastStep = 1.75f, kStep = 0.125f, kAffineStep = 0.25f;
constexpr int kRefits = 3;

// x ~ scale * level. gain is the amount by which the fit reduces the sum of w x x. curvature gives the error at another
// scale s: error(s) = sum(w x x) - gain + curvature * (s - scale)^2.
struct ScaleFit {
  float scale = 0, gain = 0, curvature = 0;
};

template <class L, int n>
ScaleFit fit_scale_at(const float* x, const float* w, float inverse) {
  F4 xl{}, ll{};
  for (int i = 0; i < n; i += 4) {
    const F4 level = L::nearest(load4(x + i) * inverse), weighted = load4(w + i) * level;
    xl += weighted * load4(x + i);
    ll += weighted * level;
  }
  const float curvature = sum(ll);
  if (!(curvature > 0)) return {};
  const float scale = sum(xl) / curvature;
  return {scale, scale * sum(xl), curvature};
}

// The value of the largest magnitude, with its sign.
template <int n>
float extreme_of(const float* x) {
  float extreme = 0;
  for (int i = 0; i < n; ++i) extreme = std::fabs(x[i]) > std::fabs(extreme) ? x[i] : extreme;
  return extreme;
}

template <class L, int n>
ScaleFit fit_scale(const float* x, const float* w) {
  const float extreme = extreme_of<n>(x);
  ScaleFit best;
  if (reciprocal(extreme) == 0) return best;
  for (const float edge : {L::lowest, L::highest}) {
    for (float step = kFirstStep; step <= kLastStep; step += kStep) {
      const float reach = std::fabs(edge) + step * L::unit;
      const ScaleFit fit = fit_scale_at<L, n>(x, w, std::copysign(reach, edge) / extreme);
      if (fit.gain > best.gain) best = fit;
    }
  }
  for (int i = 0; i < kRefits; ++i) {
    const ScaleFit fit = fit_scale_at<L, n>(x, w, reciprocal(best.scale));
    if (!(fit.gain > best.gain)) break;
    best = fit;
  }
  return best;
}

// Writes the nearest levels and returns the error. A scale of 0 gives level 0.
template <class L, int n>
float choose_levels(const float* x, const float* w, float scale, float min, float* levels) {
  const float inverse = reciprocal(scale);
  F4 error{};
  for (int i = 0; i < n; i += 4) {
    const F4 level = L::nearest((load4(x + i) - min) * inverse), off = load4(x + i) - (level * scale + min);
    store4(levels + i, level);
    error += load4(w + i) * off * off;
  }
  return sum(error);
}

// x ~ scale * code + min, with the sums from which error_at() computes the error at another scale and minimum.
struct AffineFit {
  float scale = 0, min = 0, error = 0;
  float ww = 0, wq = 0, qq = 0;  // sums of w, w q, w q q
  float error_at(float s, float m) const {
    const float ds = s - scale, dm = m - min;
    return error + qq * ds * ds + 2 * wq * ds * dm + ww * dm * dm;
  }
};

// Fits scale and minimum to the codes that (x - base) * inverse gives. With at_most_zero, the minimum is at most 0.
template <class L, int n>
AffineFit fit_affine_at(const float* x, const float* w, float base, float inverse, bool at_most_zero) {
  F4 ww{}, wq{}, qq{}, wx{}, xq{}, xx{};
  for (int i = 0; i < n; i += 4) {
    const F4 value = load4(x + i), weight = load4(w + i), code = L::nearest((value - base) * inverse),
             weighted = weight * code;
    ww += weight;
    wq += weighted;
    qq += weighted * code;
    wx += weight * value;
    xq += weighted * value;
    xx += weight * value * value;
  }
  AffineFit f{.ww = sum(ww), .wq = sum(wq), .qq = sum(qq)};
  const float det = f.ww * f.qq - f.wq * f.wq;
  if (det > 0) {
    f.scale = (f.ww * sum(xq) - f.wq * sum(wx)) / det;
    f.min = (f.qq * sum(wx) - f.wq * sum(xq)) / det;
  }
  if (at_most_zero && (f.min > 0 || !(det > 0))) {
    f.scale = f.qq > 0 ? sum(xq) / f.qq : 0;
    f.min = 0;
  }
  f.error = sum(xx) - f.scale * sum(xq) - f.min * sum(wx);
  return f;
}

template <class L, int n>
AffineFit fit_affine(const float* x, const float* w, bool at_most_zero) {
  const auto [first, last] = std::minmax_element(x, x + n);
  const float low = at_most_zero ? std::min(*first, 0.0f) : *first, range = *last - low;
  AffineFit best;
  best.min = low;
  if (reciprocal(range) == 0) return best;
  best = fit_affine_at<L, n>(x, w, low, L::highest / range, at_most_zero);
  for (float step = kFirstStep; step <= kLastStep; step += kAffineStep) {
    const float inverse = (L::highest + step) / range, excess = range - L::highest / inverse;
    for (const float share : {0.0f, 0.5f, 1.0f}) {  // the excess lies above the levels, on both sides, below
      const AffineFit fit = fit_affine_at<L, n>(x, w, low + share * excess, inverse, at_most_zero);
      if (fit.error < best.error) best = fit;
    }
  }
  for (int i = 0; i < kRefits; ++i) {
    const AffineFit fit = fit_affine_at<L, n>(x, w, best.min, reciprocal(best.scale), at_most_zero);
    if (!(fit.error < best.error)) break;
    best = fit;
  }
  return best;
}

}  // namespace ingot::quant
