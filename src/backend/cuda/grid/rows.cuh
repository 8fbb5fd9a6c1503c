// The four products of a layer for up to kMaxRows tokens, in place of products.cuh. The tokens are the 8 columns of the
// tensor core. A warp has its columns of a chunk in registers, as operands of the tensor core, and multiplies them by
// all units of the block. So a block reads each activation once. The sums are in shared memory, because a batch of
// units has too many for registers.
//
// In this file, lane 4g + t has operands of token g, and sums of tokens 2t and 2t + 1.
#pragma once
#include "backend/cuda/grid/products.cuh"

namespace ingot::cuda::grid {

template <class C, int kPhase>
class RowsProduct {
 public:
  __device__ __forceinline__ RowsProduct(const Block<C>& block, const Layer& of)
      : b(block),
        layer(of),
        units(kPlan.n_units, kShape.n_blocks),
        warp(recomputed(block.warp)),
        lane(recomputed(block.lane)),
        g(lane / 4),
        t(lane % 4),
        local(warp / kPlan.parts),
        part(warp % kPlan.parts),
        sums(reinterpret_cast<float4*>(block.template sums<kPhase>(0)) + warp * 32 + lane) {
    // The copies do not wait for other blocks. A block without units must not copy: it would not await the copies, and
    // attention uses their place.
    if (kNorm && units.first < units.end) copy_norm(kPhase == kQkv ? of.attention_norm : of.ffn_norm);
  }

  // ready() waits for the input. sink takes the outputs of kOut.
  template <class Ready, class Sink>
  __device__ __forceinline__ void run(Ring<C>& ring, Ready&& ready, const Sink& sink) {
    ready();
#pragma unroll 1
    for (int first = units.first; first < units.end; first += kPlan.batch) {
      const int n_units = min(kPlan.batch, units.end - first);
      for (int chunk = 0; chunk < kAhead; ++chunk) load(chunk);
#pragma unroll 1
      for (int chunk = 0; chunk < kPlan.n_chunks; ++chunk) {
        convert(chunk, first == units.first);
        load(chunk + kAhead);
#pragma unroll 1
        for (int unit = 0; unit < n_units; unit += kPlan.at_once)
          use_units(ring, chunk, unit / kPlan.at_once, local < min(kPlan.at_once, n_units - unit));
      }
      if (kNorm && first == units.first) put_squares();
      const float residual = kAdds ? residual_of(first, n_units) : 0.0f;
      sync_block();
      finish(first, n_units, residual, sink);
      if (first + kPlan.batch < units.end) sync_block();
    }
  }

 private:
  static constexpr Shape kShape = C::kShape;
  static constexpr PhasePlan kPlan = plan_of(kShape, kPhase);
  static constexpr WeightKind kKind = kShape.kinds[first_weight(kPhase)];
  static constexpr bool kNorm = has_norm(kPhase), kAdds = !kNorm, kFloat8 = kKind.is_float8();
  static constexpr int kGates = kPhase == kGateUp ? 2 : 1;
  static constexpr int kPieces = 8;                      // of 4 columns, of a lane in a chunk
  static constexpr int kOutputs = kTileRows * kMaxRows;  // of a unit
  static constexpr int kAtOnce = kThreads / kOutputs;    // units that finish() ends at once
  // Chunks that are loaded ahead: with a norm to registers, else to shared memory behind the sums.
  static constexpr int kAhead =
      kNorm ? 1 : smallest_of(kPlan.n_chunks, bytes_behind_sums(kShape, kPhase) / kChunkRowBytes);
  static_assert(kAhead >= 1);
  using K = Kind<kFloat8 ? Layout::kCodesE4M3 : kKind.layout, kKind.has_min, kKind.group16>;
  static constexpr bool kHasTotals = K::kMin || K::kZero;
  // Of four pairs of codes, two are multiplied as 16 times the codes, which saves a shift. So the operands of these two
  // are divided by 16.
  static constexpr bool kSixteenths = kNorm && K::kLayout == Layout::kCodes4 && !K::kMin;
  static constexpr int kGroups = K::kGroup16 ? 2 : 1;  // of columns with their own scale, in a unit of 32 columns

  const Block<C>& b;
  const Layer& layer;
  const Units units;
  const int warp, lane, g, t, local, part;        // local: which of the units side by side
  float4* const sums;                             // the lane's, of the first unit and gate
  float4 raw[kNorm ? kPieces : 1];                // of the next chunk
  uint2 x[kPieces];                               // operands of this chunk, divided by their scale
  float scales[2];                                // of this chunk and tokens 2t and 2t + 1
  float totals[kHasTotals ? 4 * kGroups : 1][4];  // moving_pair() times the operands, for each scale
  float squares = 0;                              // of token g

  // In a chunk, the lane's pieces are at these distances from its first column: in the order of packed_weight.h, or 16
  // of each 64 columns of a row.
  static __device__ __forceinline__ constexpr int distance(int piece) {
    return kFloat8 ? piece / 4 * 64 + piece % 4 * 4 : piece * 16;
  }
  __device__ __forceinline__ int first_column() const { return (kFloat8 ? 16 : 4) * t; }
  __device__ __forceinline__ int start_of(int chunk) const { return (chunk * kPlan.parts + part) * kTileCols; }

  // The warp's copy of the weights of the norm, of its columns: [n_chunks, kTileCols].
  __device__ __forceinline__ const float* norm() const {
    return reinterpret_cast<const float*>(b.shared + Block<C>::kAt.norm) + warp * kPlan.n_chunks * kTileCols;
  }
  __device__ __forceinline__ void copy_norm(const float* weight /* [n_in] */) const {
    for (int chunk = 0; chunk < kPlan.n_chunks; ++chunk) {
      const int at = start_of(chunk) + 4 * lane;
      const bool in = at < kPlan.n_in;
      matvec_step::copy16(shared_address(norm() + chunk * kTileCols + 4 * lane), weight + (in ? at : 0), in);
    }
    matvec_step::end_copies();
  }

  // Without a norm, a lane copies two pieces at a time, which only the lane reads.
  __device__ __forceinline__ uint32_t halves_at(int chunk) const {
    const int bytes = sum_bytes(kShape, kPlan, kPhase) + chunk % kAhead * kChunkRowBytes;
    return shared_address(b.shared + Block<C>::kAt.input + bytes) + (warp * (kPieces / 2) * 32 + lane) * 16;
  }
  __device__ __forceinline__ void load(int chunk) {
    const auto is_in = [&](int at) { return g < b.p.n_rows && at < kPlan.n_in; };
    if constexpr (kNorm) {
      if (chunk >= kPlan.n_chunks) return;
      const float* const from = b.p.x + g * b.p.x_stride + start_of(chunk) + first_column();
#pragma unroll
      for (int i = 0; i < kPieces; ++i)
        raw[i] = is_in(start_of(chunk) + first_column() + distance(i)) ? load4(from, distance(i)) : float4{};
    } else {
      const half* const row = (kPhase == kOut ? b.p.attended : b.p.hidden) + g * kPlan.n_in + start_of(chunk);
#pragma unroll
      for (int i = 0; i < kPieces / 2; ++i) {
        const int at = kFloat8 ? first_column() + distance(2 * i) : 8 * t + 32 * i;
        const bool in = chunk < kPlan.n_chunks && is_in(start_of(chunk) + at);
        matvec_step::copy16(halves_at(chunk) + i * 512, in ? row + at : b.p.hidden, in);
      }
      matvec_step::end_copies();
    }
  }

  // Makes the loaded chunk the one in use. The scale of a token's columns is a power of two, as in put_halves(). The
  // first batch of units adds up the squares; later batches load the same columns again.
  __device__ __forceinline__ void convert(int chunk, bool is_first_batch) {
    if constexpr (kNorm) {
      if (chunk == 0) {
        matvec_step::await_copies<0>();
        __syncwarp();
      }
      const float* weight = norm() + chunk * kTileCols + first_column();
      float size = 0;
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
        if (is_first_batch) squares += dot(raw[i], raw[i]);
        raw[i] = times(raw[i], *reinterpret_cast<const float4*>(weight + distance(i)));
        size = max_or_nan(size, largest(raw[i]));
      }
      uint32_t amax = __float_as_uint(size);
#pragma unroll
      for (int i = 1; i <= 2; i *= 2) amax = max(amax, __shfl_xor_sync(0xFFFFFFFFu, amax, i));
      const uint32_t power = min(amax & 0x7F800000u, 0x7E800000u);
      const float inverse = __uint_as_float(0x7F000000u - power), odd_inverse = kSixteenths ? inverse / 16 : inverse;
#pragma unroll
      for (int i = 0; i < kPieces; ++i)
        x[i] = {pair_of(raw[i].x * inverse, raw[i].y * inverse),
                pair_of(raw[i].z * odd_inverse, raw[i].w * odd_inverse)};
#pragma unroll
      for (int e = 0; e < 2; ++e) scales[e] = __uint_as_float(__shfl_sync(0xFFFFFFFFu, power, 8 * t + 4 * e));
    } else {
      matvec_step::await_copies<kAhead - 1>();
#pragma unroll
      for (int i = 0; i < kPieces; i += 2) {
        const uint4 two = load_again(halves_at(chunk) + i * 256);
        x[i] = {two.x, two.y}, x[i + 1] = {two.z, two.w};
      }
    }
    if constexpr (kHasTotals) {
      const uint32_t even = matvec_step::moving_pair<K>(kKind.zero),
                     odd = kSixteenths ? matvec_step::moving_pair<K>(16 * kKind.zero) : even;
#pragma unroll
      for (int i = 0; i < 4 * kGroups; ++i) {
        const uint2 &first = x[2 * i / kGroups], &second = x[2 * i / kGroups + 1];
        mma_new(totals[i], even, even, odd, odd, first.x, first.y);
        if constexpr (kGroups == 1) mma(totals[i], even, even, odd, odd, second.x, second.y);
      }
    }
  }

  // Multiplies the chunk by a group of units, and adds the products to the sums.
  __device__ __forceinline__ void use_units(Ring<C>& ring, int chunk, int group, bool has_unit) const {
    const bool has_step = has_unit && local < kPlan.at_once && chunk * kPlan.parts + part < kPlan.n_steps;
    float4* to = sums + group * kGates * kWarps * 32;
#pragma unroll 1  // twice the code was 2 % slower
    for (int gate = 0; gate < kGates; ++gate, to += kWarps * 32) {
      ring.await_copy();
      const auto release = [&](uint32_t words) { ring.release(words, lane); };  // as early as possible
      if (has_step) {
        const char* const unit =
            b.shared + Ring<C>::kAt.ring + ring.slot * Ring<C>::kAt.slot_bytes + local * kPlan.unit_bytes;
        float sum[4] = {};
        if constexpr (kFloat8) {
          multiply_float8(sum, unit, release);
        } else {
          multiply_codes(sum, unit, release);
        }
        if constexpr (kNorm) {
#pragma unroll
          for (int e = 0; e < 4; ++e) sum[e] *= scales[e % 2];
        }
        const float4 before = chunk > 0 ? *to : float4{};
        *to = make_float4(before.x + sum[0], before.y + sum[1], before.z + sum[2], before.w + sum[3]);
      } else {
        release(0);
      }
      ring.advance();
    }
  }

  __device__ __forceinline__ void put_pairs(uint32_t (&pairs)[4], uint32_t word0, uint32_t word1) const {
    if constexpr (kSixteenths) {
      pairs[0] = word0 & 0x000F000Fu, pairs[1] = word0 & 0x00F000F0u;
      pairs[2] = word0 >> 8 & 0x000F000Fu, pairs[3] = word0 >> 8 & 0x00F000F0u;
    } else {
      matvec_step::pairs_of<K>(pairs, word0, word1, b.table);
    }
  }
  // release() is called when the slot has been read, with words of all loads.
  template <class Release>
  __device__ __forceinline__ void multiply_codes(float (&sum)[4], const char* unit, Release&& release) const {
    constexpr int kRowPieces = has_bytes(K::kLayout) ? 2 : 1, kRowScales = 4 * matvec_step::Scales<K>::kWords;
    const uint4* codes = reinterpret_cast<const uint4*>(unit + part * kKind.code_bytes()) + lane;
    uint4 upper[kRowPieces], lower[kRowPieces];
#pragma unroll
    for (int i = 0; i < kRowPieces; ++i) upper[i] = codes[64 * i], lower[i] = codes[64 * i + 32];
    const char* of_rows = unit + kPlan.parts * kKind.code_bytes() + part * kKind.scale_bytes() + g * kRowScales;
    const matvec_step::Scales<K> rows[2] = {matvec_step::Scales<K>(of_rows),
                                            matvec_step::Scales<K>(of_rows + 8 * kRowScales)};
    uint32_t words = 0;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int i = 0; i < kRowPieces; ++i) words |= r == 0 ? upper[i].x : lower[i].x;
#pragma unroll
      for (int i = 0; i < matvec_step::Scales<K>::kWords; i += 4) words |= rows[r].words[i];
    }
    release(words);
    const auto word = [](const uint4(&pieces)[kRowPieces], int u, int i) {
      return kRowPieces == 1 ? word_of(pieces[0], u) : word_of(pieces[u / 2 % kRowPieces], u % 2 * 2 + i);
    };
#pragma unroll
    for (int u = 0; u < 4; ++u) {
      uint32_t above[4], below[4];
      put_pairs(above, word(upper, u, 0), word(upper, u, 1));
      put_pairs(below, word(lower, u, 0), word(lower, u, 1));
#pragma unroll
      for (int h = 0; h < kGroups; ++h) {
        const uint2 &first = x[2 * u + h], &second = x[2 * u + 1];
        float product[4];
        const float(&total)[4] = totals[kHasTotals ? u * kGroups + h : 0];
        if constexpr (kHasTotals && !K::kMin) {
          mma_add(product, above[2 * h], below[2 * h], above[2 * h + 1], below[2 * h + 1], first.x, first.y, total);
        } else {
          mma_new(product, above[2 * h], below[2 * h], above[2 * h + 1], below[2 * h + 1], first.x, first.y);
        }
        if constexpr (kGroups == 1) mma(product, above[2], below[2], above[3], below[3], second.x, second.y);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          sum[e] += rows[e / 2].get(u, h, false) * product[e];
          if constexpr (K::kMin) sum[e] += rows[e / 2].get(u, h, true) * total[e];
        }
      }
    }
  }
  template <class Release>
  __device__ __forceinline__ void multiply_float8(float (&sum)[4], const char* unit, Release&& release) const {
    constexpr int kStride = row_bytes(kPlan.parts);
    const char* const row = unit + g * kStride + part * kTileCols + 16 * t;
    const float* const of_rows = reinterpret_cast<const float*>(unit + kTileRows * kStride) + part * kTileRows + g;
    uint4 upper[2], lower[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      upper[i] = *reinterpret_cast<const uint4*>(row + 64 * i);
      lower[i] = *reinterpret_cast<const uint4*>(row + 8 * kStride + 64 * i);
    }
    const float rows[2] = {of_rows[0], of_rows[8]};
    release(upper[0].x | upper[1].x | lower[0].x | lower[1].x | __float_as_uint(rows[0]) | __float_as_uint(rows[1]));
    float parts[2][4] = {};
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const uint2 above = halves_of_float8(word_of(upper[i / 4], i % 4)),
                  below = halves_of_float8(word_of(lower[i / 4], i % 4));
      mma(parts[i % 2], above.x, below.x, above.y, below.y, x[i].x, x[i].y);
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) sum[e] = rows[e / 2] * (parts[0][e] + parts[1][e]);
  }

  __device__ __forceinline__ void put_squares() const {
    float sum = squares;
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
    if (t == 0) b.squares[warp * kMaxRows + g] = sum;
  }

  // Output f of a unit, in the order of the sums.
  struct Output {
    int row, token;
    __device__ __forceinline__ explicit Output(int f) : row(f / 16 + f % 4 / 2 * 8), token(f / 4 % 4 * 2 + f % 2) {}
  };
  __device__ __forceinline__ float* residual_at(const Output& output, int unit) const {
    return b.p.x + output.token * b.p.x_stride + unit * kTileRows + output.row;
  }
  // Of the thread's first output.
  __device__ __forceinline__ float residual_of(int first, int n_units) const {
    const int thread = static_cast<int>(threadIdx.x), i = thread / kOutputs;
    const Output output(thread % kOutputs);
    return i < n_units && output.token < b.p.n_rows ? __ldcg(residual_at(output, first + i)) : 0.0f;
  }

  // Adds up the sums of the warps, and writes the outputs of a batch of units.
  template <class Sink>
  __device__ __forceinline__ void finish(int first, int n_units, float residual, const Sink& sink) const {
    const Params& p = b.p;
    const int f = static_cast<int>(threadIdx.x) % kOutputs;
    const Output output(f);
    if (output.token >= p.n_rows) return;
    float inverse = 1;
    if constexpr (kNorm) {
      float total = 0;
#pragma unroll
      for (int i = 0; i < kPlan.parts; ++i) total += b.squares[i * kMaxRows + output.token];
      inverse = rsqrtf(total / static_cast<float>(kPlan.n_in) + p.eps);
    }
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x) / kOutputs; i < n_units; i += kAtOnce) {
      const int group = i / kPlan.at_once, unit = first + i;
      const float* from =
          b.template sums<kPhase>(0) + f + (group * kGates * kWarps + i % kPlan.at_once * kPlan.parts) * kOutputs;
      float total[2] = {0, 0};
#pragma unroll
      for (int k = 0; k < kPlan.parts; ++k) {
        total[0] += from[k * kOutputs];
        if constexpr (kGates == 2) total[1] += from[(kWarps + k) * kOutputs];
      }
      const Place at = place_of<C, kPhase>(unit);
      const LayerProduct* w = layer.products + at.weight;
      const int out = at.tile * kTileRows + output.row;
      total[0] *= w->factor * K::kPerLevel * inverse;
      if constexpr (kAdds) {
        float* const to = residual_at(output, unit);
        total[0] += i < kAtOnce ? residual : __ldcg(to);
        *to = total[0];
        if constexpr (kPhase == kOut && Sink::kTakes)
          sink.put(unit, output.token, output.row, total[0], __ldg(layer.ffn_norm + unit * kTileRows + output.row));
      } else if constexpr (kPhase == kGateUp) {
        total[1] *= w[1].factor * K::kPerLevel * inverse;
        p.hidden[output.token * kShape.hidden() + place_in_row<C, kWeightDown>(out)] =
            from_float<half>(act_mul(total[0], total[1], kShape.act));
      } else {
        constexpr int kCols = (kShape.n_heads + 2 * kShape.n_kv_heads) * kShape.head_dim;
        if (kShape.biases && w->bias != nullptr) total[0] += w->bias[out];
        p.heads[output.token * kCols + unit * kTileRows + output.row] = total[0];
      }
    }
  }
};

}  // namespace ingot::cuda::grid
