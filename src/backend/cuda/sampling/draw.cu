// Draws from each row of logits, one block per row: penalties and bias, logprobs, truncations, and the draw itself. The
// order is that of sampling.h, and the result is that of sampler.h except for rounding.
//
// No row is sorted. Every truncation keeps a prefix of the tokens in order of likelihood. One pass finds the largest
// logit, the sum of all weights, and each thread's own largest logit. The k-th largest of the threads' logits is a
// lower bound for the top k, because at least k logits reach it. A second pass gathers the logits that reach the
// bounds, mostly tens of candidates, and only these are sorted. If there are too many (a flat row under top-p), a
// histogram of counts estimates where the prefix ends, and the logits around that end are sorted. Sums are over fixed
// shares, so a row's draw is batch-invariant.
#include <algorithm>

#include "backend/cuda/kernels.h"
#include "backend/cuda/sampling/draw_block.cuh"
#include "backend/sampling.h"

namespace ingot::cuda {
namespace {

// ---- where the prefix ends, for rows with more candidates than fit ----

struct Prefix {
  Key last;  // last kept key in the order of likelihood: a key that is not below it is kept
  double mass;
};

// How far a logit is below the top, down to a floor, as an integer of kDepthBits bits.
constexpr int kDepthBits = 31, kBinBits = 11;
constexpr float kDeepest = 0x7FFFFF80;  // the largest float below 2^31
static_assert(1 << kBinBits == kBins);
struct Depth {
  float top, floor, per_nat;
  __device__ Depth(float top, float floor)
      : top(top), floor(floor), per_nat(top > floor ? kDeepest / (top - floor) : 0) {}
  __device__ uint32_t operator()(float v) const {
    return v == top ? 0 : static_cast<uint32_t>(fminf((top - v) * per_nat, kDeepest));
  }
  __device__ float logit(uint32_t depth) const { return per_nat > 0 ? top - static_cast<float>(depth) / per_nat : top; }
};

// The key of the m-th logit, by id, of one depth.
__device__ Key nth_of_ties(const Row& row, const Depth& depth, uint32_t tied, double m, Shared& s) {
  reset(s);
  double before = 0;
  for (int first = 0; first < row.n && before < m; first += kThreads) {
    const int i = first + static_cast<int>(threadIdx.x);
    const float v = i < row.n ? row.at(i) : -INFINITY;
    const bool in = v >= depth.floor && depth(v) == tied;
    const double rank = before + scan(in ? 1.0 : 0.0, s);
    if (in && rank <= m) atomicMax(&s.last, i);
    before += total(s);
  }
  __syncthreads();
  return key_of(row.at(s.last), s.last);
}

struct Target {
  bool by_mass;
  double amount;  // number of elements, or mass
};

// 2^bits depths, from `begin` on.
struct Bin {
  uint32_t begin;
  int bits;
  __device__ bool has(uint32_t depth) const { return depth >= begin && (depth - begin) >> bits == 0; }
};

// The part of a bin in which the target is reached, estimated from the counts of the parts. All weights of a part are
// taken to be equal, so the estimate is exact for a count, but not for a mass.
__device__ Bin part_of(const Row& row, const Depth& depth, const Bin& bin, double count, double mass,
                       const Target& target, Shared& s) {
  const int shift = max(bin.bits - kBinBits, 0);
  __syncthreads();
  for (int b = threadIdx.x; b < kBins; b += kThreads) s.counts[b] = 0;
  reset(s);
  each(row, [&](float v, int) {
    if (!(v >= depth.floor)) return;
    const uint32_t d = depth(v);
    if (bin.has(d)) atomicAdd(&s.counts[(d - bin.begin) >> shift], 1u);
  });
  __syncthreads();
  const uint32_t b = 2 * threadIdx.x;
  double amounts[2];
  for (uint32_t j = 0; j < 2; ++j) {
    const uint32_t middle = bin.begin + ((b + j) << shift) + (1u << shift) / 2;
    amounts[j] = s.counts[b + j] * (target.by_mass ? double{weight(depth.logit(middle), depth.top, 1.0f)} : 1.0);
  }
  double to = (target.by_mass ? mass : count) + scan(amounts[0] + amounts[1], s) - amounts[1];
  for (int j = 0; j < 2; ++j, to += amounts[1]) {
    if (s.counts[b + j] == 0) continue;
    atomicMax(&s.last, static_cast<int>(b) + j);
    if (to >= target.amount) atomicMin(&s.first, static_cast<int>(b) + j);
  }
  __syncthreads();
  return {bin.begin + (static_cast<uint32_t>(s.first < kNone ? s.first : s.last) << shift), shift};
}

// Computes the exact count and mass before a bin, and gathers the elements of the bin.
struct Around {
  double count, mass, mass_in;
  int n_in;
};
__device__ Around look_around(const Row& row, const Depth& depth, const Bin& bin, Shared& s) {
  float count = 0, mass = 0, mass_in = 0;
  const int n_in = gather(row, s, [&](float v, int) {
    if (!(v >= depth.floor)) return false;
    const uint32_t d = depth(v);
    const bool in = bin.has(d);
    if (d < bin.begin || in) (in ? mass_in : mass) += weight(v, depth.top, 1.0f);
    count += d < bin.begin;
    return in;
  });
  Around around{.n_in = n_in};
  scan(count, s), around.count = total(s);
  scan(mass, s), around.mass = total(s);
  scan(mass_in, s), around.mass_in = total(s);
  return around;
}

// Returns the shortest prefix of the row's logits, from the top down to `floor`, that reaches the target's count or
// mass. Returns all these logits if they do not reach the target.
__device__ Prefix prefix_of(const Row& row, float top, float floor, const Target& target, Shared& s) {
  const Depth depth(top, fmaxf(floor, top - 100.0f));  // logits further below have no weight
  Bin bin{0, kDepthBits};
  Around around{};
  while (true) {
    bin = part_of(row, depth, bin, around.count, around.mass, target, s);
    around = look_around(row, depth, bin, s);
    // Corrects an estimate that was off by a bin or two.
    for (int moves = 0; target.by_mass && moves < 4; ++moves) {
      const bool back = around.mass >= target.amount && bin.begin > 0;
      if (!back && (around.mass + around.mass_in >= target.amount || bin.begin + (1ull << bin.bits) > 0x7FFFFF80))
        break;
      bin.begin += back ? -(1u << bin.bits) : 1u << bin.bits;
      around = look_around(row, depth, bin, s);
    }
    if (around.n_in <= kCandidates) break;
    if (bin.bits > 0) continue;
    const double one = around.mass_in / around.n_in;
    const double wanted =
        ceil(target.by_mass ? (target.amount - around.mass) / fmax(one, 0x1p-60) : target.amount - around.count);
    const double m = fmin(fmax(wanted, 1.0), static_cast<double>(around.n_in));
    return {nth_of_ties(row, depth, bin.begin, m, s), around.mass + m * one};
  }
  sort_keys(s, around.n_in);
  const Sums sums = sum_sorted(s, around.n_in, top);
  reset(s);
  const int i = 2 * static_cast<int>(threadIdx.x);
  for (int j = 0; j < 2 && i + j < around.n_in; ++j)
    if ((target.by_mass ? around.mass + sums.mass[j] : around.count + i + j + 1) >= target.amount)
      atomicMin(&s.first, i + j);
  __syncthreads();
  const int end = max(0, min(s.first, around.n_in - 1));
  if (i == (end & ~1)) s.before = around.mass + sums.mass[end & 1];
  __syncthreads();
  if (around.n_in > 0) return {s.keys[end], s.before};
  return {static_cast<Key>(ordered_bits(depth.logit(bin.begin))) << 32, around.mass};  // rounding left an empty bin
}

// ---- the draw ----

// Records candidate i if it is picked. `to` is the sum of the weights up to and including i.
__device__ void pick(int i, float w, double to, double target, Shared& s) {
  if (!(w > 0)) return;
  atomicMax(&s.last, i);  // for a target that rounding moves past the end
  if (to > target) atomicMin(&s.first, i);
}
__device__ int picked(const Shared& s) { return s.first < kNone ? s.first : s.last; }

// Picks by u from the first n of the sorted candidates, in order of id.
__device__ int32_t draw_sorted(int n, float top, const RowDraw& d, Shared& s) {
  for (int i = threadIdx.x; i < n; i += kThreads) {
    const Key key = s.keys[i];
    s.keys[i] = key << 32 | __float_as_uint(weight(logit_of(key), top, d.inverse_temperature));
  }
  sort_keys(s, n);
  reset(s);
  const int i = 2 * static_cast<int>(threadIdx.x);
  const float w0 = i < n ? __uint_as_float(static_cast<uint32_t>(s.keys[i])) : 0.0f;
  const float w1 = i + 1 < n ? __uint_as_float(static_cast<uint32_t>(s.keys[i + 1])) : 0.0f;
  const double to = scan(double{w0} + w1, s), target = d.u * total(s);
  pick(i, w0, to - w1, target, s);
  pick(i + 1, w1, to, target, s);
  __syncthreads();
  return id_of(s.keys[picked(s)] >> 32);
}

// Picks by u from all logits of the row that are not below `last`. Each warp sums a share of the row; then the block
// searches the share that holds the target.
__device__ int32_t draw_from_row(const Row& row, Key last, float top, const RowDraw& d, Shared& s) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, share = (row.n + 31) / 32;
  const auto weight_at = [&](int i) {
    const float v = row.at(i);
    return v == -INFINITY || key_of(v, i) < last ? 0.0f : weight(v, top, d.inverse_temperature);
  };
  reset(s);
  float sum = 0;
  const int end = min(row.n, (warp + 1) * share);
#pragma unroll 8
  for (int i = warp * share + lane; i < end; i += 32) sum += weight_at(i);
  sum = warp_sum(sum);
  if (lane == 0) s.sums[warp] = sum;
  __syncthreads();
  double target = 0;
  int chosen = 0;
  for (int i = 0; i < 32; ++i) target += s.sums[i];
  target *= d.u;
  while (chosen < 31 && target >= s.sums[chosen]) target -= s.sums[chosen++];
  while (chosen > 0 && s.sums[chosen] == 0) --chosen;
  const int stop = min(row.n, (chosen + 1) * share);
  double before = 0;
  for (int first = chosen * share; first < stop && s.first == kNone; first += kThreads) {
    const int i = first + static_cast<int>(threadIdx.x);
    const float w = i < stop ? weight_at(i) : 0.0f;
    pick(i, w, before + scan(w, s), target, s);
    before += total(s);
    __syncthreads();
  }
  return picked(s);
}

// Returns how many of the n sorted candidates the truncations keep.
__device__ int kept_of(int n, const Best& best, const RowDraw& d, Shared& s) {
  if (d.top_k > 0) n = min(n, d.top_k);
  const Sums sums = sum_sorted(s, n, best.top);
  const double target = double{d.top_p} * (d.top_k > 0 ? sums.total : best.total);
  const float floor = best.top + d.log_min_p;
  reset(s);
  const int i = 2 * static_cast<int>(threadIdx.x);
  for (int j = 0; j < 2 && i + j < n; ++j) {
    if (d.top_p < 1 && sums.mass[j] >= target) atomicMin(&s.first, i + j + 1);
    if (logit_of(s.keys[i + j]) < floor) atomicMin(&s.first, i + j);
  }
  __syncthreads();
  return max(1, min(n, s.first));
}

// If the sum of all weights exceeds this multiple of the largest weight, there are too many candidates to gather.
constexpr double kFlat = 500;

__device__ int32_t draw(const Row& row, const RowDraw& d, const Best& best, Shared& s) {
  const bool top_k = d.top_k > 0;
  if (!top_k && d.top_p >= 1 && d.log_min_p == -INFINITY) return draw_from_row(row, 0, best.top, d, s);
  // A bound that all kept logits reach. With top-k and top-p there is no such bound, because the logits that min-p
  // removes still count in the mass of the top k.
  float floor = top_k && d.top_p < 1 ? -INFINITY : best.top + d.log_min_p;
  if (top_k && d.top_k <= kThreads) {
    floor = fmaxf(floor, kth_of_threads(best.of_thread, d.top_k, s));
  } else if (!top_k && d.top_p < 1) {
    // All logits below (1 - p) / n of the total together have less than 1 - p of it, so the rest have at least p. The
    // bound is halved because of rounding.
    const double share = 0.5 * (1.0 - double{d.top_p}) * best.total / row.n;
    floor = fmaxf(floor, best.top + static_cast<float>(log(share)));
  }
  const bool flat = !top_k && best.total > kFlat;
  int n = flat ? kCandidates + 1 : gather(row, s, [&](float v, int) { return v >= floor; });
  if (n > kCandidates) {
    Prefix prefix{0, best.total};
    if (top_k) prefix = prefix_of(row, best.top, -INFINITY, {false, static_cast<double>(d.top_k)}, s);
    if (!top_k || d.top_k > kCandidates) {
      if (d.top_p < 1)
        prefix.last = max(prefix.last, prefix_of(row, best.top, floor, {true, d.top_p * prefix.mass}, s).last);
      if (d.log_min_p > -INFINITY)
        prefix.last = max(prefix.last, static_cast<Key>(ordered_bits(best.top + d.log_min_p)) << 32);
      return draw_from_row(row, prefix.last, best.top, d, s);
    }
    n = gather(row, s, [&](float v, int id) { return key_of(v, id) >= prefix.last; });
  }
  sort_keys(s, n);
  return draw_sorted(kept_of(n, best, d, s), best.top, d, s);
}

// Finds the most likely tokens of the raw row.
__device__ void find_top(const Row& row, const Best& best, double log_total, int n_top, RowDrawn& out, Shared& s) {
  const int wanted = min(n_top, row.n);
  int n = 0;
  if (wanted > 0) {
    const float floor = kth_of_threads(best.of_thread, wanted, s);
    n = gather(row, s, [&](float v, int) { return v >= floor; });
    if (n > kCandidates) {
      const Key last = prefix_of(row, best.top, floor, {false, static_cast<double>(wanted)}, s).last;
      n = gather(row, s, [&](float v, int id) { return key_of(v, id) >= last; });
    }
    sort_keys(s, n);
  }
  if (threadIdx.x == 0) out.n_top = min(n, wanted);
  if (static_cast<int>(threadIdx.x) < min(n, wanted)) {
    const Key key = s.keys[threadIdx.x];
    out.top[threadIdx.x] = id_of(key);
    out.top_logprob[threadIdx.x] = logprob_of(logit_of(key), best.top, log_total);
  }
  __syncthreads();
}

// Applies penalties, then the bias.
__device__ void edit(float* logits, LogitEdit& e, const RowDraw& d) {
  float v = e.raw = logits[e.token];
  if (e.count > 0) {
    v = v > 0 ? v / d.repetition : v * d.repetition;
    v -= d.presence + static_cast<float>(e.count) * d.frequency;
  }
  logits[e.token] = e.bias == -INFINITY ? -INFINITY : v + e.bias;
}

__global__ void __launch_bounds__(kThreads)
    draw_kernel(RowDrawn* drawn, float* logits, int64_t stride, int n, const RowDraw* draws, LogitEdit* edits) {
  __shared__ Shared s;
  const RowDraw d = draws[blockIdx.x];
  RowDrawn& out = drawn[blockIdx.x];
  float* const row_logits = logits + d.row * stride;

  double log_total = 0;
  float raw_top = 0;
  Best best;
  const bool edited = d.n_edits > 0 || d.mask != nullptr;
  if (d.n_top >= 0 || !edited) best = look_at({row_logits, nullptr, n}, s);
  if (d.n_top >= 0) {
    log_total = log(best.total), raw_top = best.top;
    find_top({row_logits, nullptr, n}, best, log_total, d.n_top, out, s);
  }
  const Row row{row_logits, d.mask, n};
  if (edited) {
    for (int i = threadIdx.x; i < d.n_edits; i += kThreads) edit(row_logits, edits[d.first_edit + i], d);
    __syncthreads();
    best = look_at(row, s);
  }

  int32_t token = best.top_id;
  if (d.inverse_temperature > 0) token = best.top == -INFINITY ? kNoToken : draw(row, d, best, s);
  if (d.inverse_temperature == 0 && best.top == -INFINITY) token = d.may_forbid ? kNoToken : 0;
  if (threadIdx.x == 0) {
    out.token = token;
    if (d.n_top < 0) out.n_top = 0;
    float raw = token >= 0 ? row_logits[token] : 0.0f;
    for (int i = 0; i < d.n_edits; ++i)
      if (edits[d.first_edit + i].token == token) raw = edits[d.first_edit + i].raw;
    out.logprob = d.n_top >= 0 ? logprob_of(raw, raw_top, log_total) : 0.0f;
  }
}

}  // namespace

void draw_rows(RowDrawn* drawn, const Tensor& logits, const RowDraw* draws, int n_draws, LogitEdit* edits,
               Device& device) {
  draw_kernel<<<n_draws, kThreads, 0, device.stream()>>>(drawn, logits.f32(), logits.stride,
                                                         static_cast<int>(logits.cols), draws, edits);
}

}  // namespace ingot::cuda
