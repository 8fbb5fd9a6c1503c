// Products of a few tokens with panels of TQ1_0 blocks. A byte holds five digits of three values (quant/tq1_0.h).
//
// Most digits are not separated. The first k + 1 digits of a byte, as one number, are the whole part of its fraction
// times 3^(k + 1), which takes one multiplication. Such numbers replace the digits: digit k is number k minus three
// times number k - 1, so
//
//   sum of digit k * a[k]  =  sum of number k * (a[k] - 3 * a[k + 1]),
//
// where a[k] is the activation of digit k, and 0 after the last digit. The differences of activations are the same for
// all rows, so they are computed once. They need 16 bits, which leaves room for activations of 14 bits. The 256
// activations of a block share a scale.
//
// The terms of a byte are much larger than their sum, so they must be added as integers, in the same lane. The last
// four bytes of a block have their digits in different lanes of one vector, so these digits are separated.
#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/simd.h"
#include "backend/cpu/kernels/tables.h"

namespace ingot::cpu::INGOT_ISA {
namespace {

constexpr int kWords = 16, kBlock = kGroup * kSuperGroups, kBlockBytes = 54, kScaleAt = 52;
constexpr int kVectors = kBlock / kWords;

// A block of a token (ActLayout::by_row with int16_limit).
struct Act {
  float scale;
  int32_t start[8];  // minus the sum of the activations, because digit 1 means 0; the other seven are 0
  int16_t differences[kVectors][kWords];  // the last vector has the activations themselves
};
static_assert(sizeof(Act) == kTernaryActBytes);

// Where the blocks of 16 bytes have their activations: 32 bytes hold five times 32 digits, 16 bytes five times 16.
struct Chunk {
  int first, step;  // of the first digits, and from a digit to the next
};
constexpr int kChunks = 3, kDigits = 5;
constexpr Chunk kChunkOf[kChunks] = {{0, 32}, {16, 32}, {160, 16}};
constexpr int kLast = 240;  // the first activation of the last four bytes, which hold four digits

// The products of a row's block and a block of M tokens, `stride` blocks apart.
template <int M>
INLINE void dot_block(const uint8_t* block, const Act* tokens, int64_t stride, Sums (&sums)[M]) {
#pragma GCC unroll 4
  for (int m = 0; m < M; ++m) sums[m] = load_as<Sums>(tokens[m * stride].start);
  const auto add = [&](int vector, Words numbers) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m)
      sums[m] = dot_words(sums[m], numbers, load_as<Words>(tokens[m * stride].differences[vector]));
  };
#pragma GCC unroll 3
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    const Words bytes = widen(load_as<Half>(block + kWords * chunk));
    uint16_t power = 3;
#pragma GCC unroll 5
    for (int digit = 0; digit < kDigits; ++digit, power *= 3)
      add(kDigits * chunk + digit, high_bytes(bytes, Words{} + power));
  }
  typedef uint32_t Four __attribute__((vector_size(16)));
  const Half last = (Half)(Four{} + load_as<uint32_t>(block + kWords * kChunks));
  const Words powers = {1, 1, 1, 1, 3, 3, 3, 3, 9, 9, 9, 9, 27, 27, 27, 27};
  add(kVectors - 1, high_bytes(widen(last) * powers & 0xFF, Words{} + 3));
}

INLINE float total_of(Floats v) {
  float lanes[8];
  __builtin_memcpy(lanes, &v, sizeof(v));
  return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) + ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

constexpr int kRowsAtOnce = W < 8 ? 8 : W;

template <int M>
void dot_rows(const uint8_t* panel, const uint8_t* act, int64_t n_in, float* out) {
  const int64_t n_blocks = n_in / kBlock;
  const Act* tokens = (const Act*)act;
  Floats totals[kPanelRows][M] = {};
  for (int64_t block = 0; block < n_blocks; ++block)
    for (int first = 0; first < kPanelRows; first += kRowsAtOnce) {
      uint16_t halves[kRowsAtOnce];
      float scales[kRowsAtOnce];
      for (int i = 0; i < kRowsAtOnce; ++i) halves[i] = load_as<uint16_t>(panel + i * kBlockBytes + kScaleAt);
      for (int i = 0; i < kRowsAtOnce; i += W) store(scales + i, load_f16(halves + i));
#pragma GCC unroll 1
      for (int i = 0; i < kRowsAtOnce; ++i, panel += kBlockBytes) {
        __builtin_prefetch(panel + kPrefetchAhead, 0, 2);
        Sums sums[M];
        dot_block<M>(panel, tokens + block, n_blocks, sums);
#pragma GCC unroll 4
        for (int m = 0; m < M; ++m)
          totals[first + i][m] +=
              __builtin_convertvector(sums[m], Floats) * (scales[i] * tokens[block + m * n_blocks].scale);
      }
    }
  for (int row = 0; row < kPanelRows; ++row)
    for (int m = 0; m < M; ++m) out[m * kPanelRows + row] = total_of(totals[row][m]);
}

void pack_block(const float* x, Act& act) {
  F top = {};
  for (int i = 0; i < kBlock; i += W) top = larger_size(abs(load(x + i)), top);
  const float amax = largest_size(top), inverse = amax > 1e-30f ? (float)kInt16Activation / amax : 0.0f;
  int32_t a[kBlock];
  I total = {};
  for (int i = 0; i < kBlock; i += W) {
    const I rounded = round_to_int(load(x + i) * inverse);
    total += rounded;
    __builtin_memcpy(a + i, &rounded, sizeof(rounded));
  }
  memset(&act, 0, sizeof(act));
  act.scale = amax / (float)kInt16Activation;
  act.start[0] = -sum(total);
  for (int vector = 0; vector < kVectors - 1; ++vector) {
    const int digit = vector % kDigits, step = kChunkOf[vector / kDigits].step;
    const int32_t* from = a + kChunkOf[vector / kDigits].first + digit * step;
    for (int i = 0; i < kWords; ++i)
      act.differences[vector][i] = (int16_t)(from[i] - (digit + 1 < kDigits ? 3 * from[i + step] : 0));
  }
  for (int i = 0; i < kWords; ++i) act.differences[kVectors - 1][i] = (int16_t)a[kLast + i];
}

}  // namespace

void pack_ternary(const float* x, int64_t stride, int m, int64_t n_in, uint8_t* tile) {
  auto* act = (Act*)tile;
  for (int token = 0; token < m; ++token)
    for (int64_t k = 0; k < n_in; k += kBlock) pack_block(x + token * stride + k, *act++);
}

void dot_ternary_rows(const uint8_t* panel, const uint8_t* act, int m, int64_t n_in, float* out) {
  if (m == 1) return dot_rows<1>(panel, act, n_in, out);
  if (m == 2) return dot_rows<2>(panel, act, n_in, out);
  if (m == 3) return dot_rows<3>(panel, act, n_in, out);
  dot_rows<4>(panel, act, n_in, out);
}

}  // namespace ingot::cpu::INGOT_ISA
