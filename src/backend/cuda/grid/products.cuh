// A block's share of the four products of a layer. A warp multiplies its columns of each unit on the tensor cores. Then
// the sums of the warps are added up.
#pragma once
#include "backend/cuda/grid/input.cuh"

namespace ingot::cuda::grid {

// The scales of a unit of a row, each with its minimum.
template <class K>
struct alignas(2 * (K::kGroup16 ? 2 : 1) * (K::kMin ? 2 : 1)) UnitScales {
  half v[K::kGroup16 ? 2 : 1][K::kMin ? 2 : 1];
};

// Adds a step of codes to the lane's sums of rows g and g + 8; the four lanes of a row have a unit each. release() is
// called when the slot has been read, with words of all loads.
template <class K, class Release>
__device__ __forceinline__ void multiply_codes(float (&acc)[2], const char* codes, const char* scales,
                                               const CodesInput& input, int lane, const uint32_t* table,
                                               Release&& release) {
  constexpr int kRowPieces = K::kLayout == Layout::kCodes8 ? 2 : 1, kGroups = K::kGroup16 ? 2 : 1;
  const uint4* from = reinterpret_cast<const uint4*>(codes) + lane;
  uint4 upper[kRowPieces], lower[kRowPieces];
#pragma unroll
  for (int i = 0; i < kRowPieces; ++i) upper[i] = from[64 * i], lower[i] = from[64 * i + 32];
  const auto* const scale_of = reinterpret_cast<const UnitScales<K>*>(scales) + lane;
  const UnitScales<K> own_scales[2] = {scale_of[0], scale_of[32]};
  uint32_t words = __half_as_ushort(own_scales[0].v[0][0]) | __half_as_ushort(own_scales[1].v[0][0]);
#pragma unroll
  for (int i = 0; i < kRowPieces; ++i) words |= upper[i].x | lower[i].x;
  release(words);
  const uint2 x = input.bytes[lane];
  int2 totals{};
  if constexpr (K::kMin || K::kZero) totals = input.totals[lane % 4];
  int sums[2][4] = {};  // of even and odd units, or of the halves of all units
  if constexpr (K::kZero && !K::kMin) {
    sums[0][1] = sums[0][3] = totals.x;
    if constexpr (K::kGroup16) sums[1][1] = sums[1][3] = totals.y;
  }
#pragma unroll
  for (int u = 0; u < 4; ++u) {
    const uint2 a = bytes_of<K>(upper, u, table), b = bytes_of<K>(lower, u, table);
    const uint2 own = lane / 8 == u ? x : uint2{};
    constexpr bool kSigned = !K::kZero;
    constexpr ByteOrder kOrder = byte_order(K::kLayout);
    if constexpr (!K::kGroup16) {
      mma_bytes<kSigned>(sums[u % 2], a.x, b.x, a.y, b.y, own.x, own.y);
    } else {
      mma_bytes<kSigned>(sums[0], a.x, b.x, a.y, b.y, own.x & kOrder.first_mask, own.y & kOrder.second_mask);
      mma_bytes<kSigned>(sums[1], a.x, b.x, a.y, b.y, own.x & ~kOrder.first_mask, own.y & ~kOrder.second_mask);
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float sum = 0;
#pragma unroll
    for (int h = 0; h < kGroups; ++h) {
      int product = 256 * sums[h][2 * r] + sums[h][2 * r + 1];
      if constexpr (!K::kGroup16) product += 256 * sums[1][2 * r] + sums[1][2 * r + 1];
      const auto& own = own_scales[r].v[h];
      sum += __half2float(own[0]) * static_cast<float>(product);
      if constexpr (K::kMin) sum += __half2float(own[1]) * static_cast<float>(h == 0 ? totals.x : totals.y);
    }
    acc[r] += input.scale * sum;
  }
}

// Adds a step of 128 columns of 8-bit floats. release() is called when the slot has been read, with words of all loads.
template <class Release>
__device__ __forceinline__ void multiply_float8(float (&acc)[2], const char* row, int row_stride, const float* scales,
                                                const Float8Input& input, int lane, Release&& release) {
  uint4 upper[2], lower[2];
#pragma unroll
  for (int u = 0; u < 2; ++u) {
    upper[u] = *reinterpret_cast<const uint4*>(row + 64 * u);
    lower[u] = *reinterpret_cast<const uint4*>(row + 8 * row_stride + 64 * u);
  }
  const float own_scales[2] = {scales[0], scales[8]};
  release(upper[0].x | upper[1].x | lower[0].x | lower[1].x | __float_as_uint(own_scales[0]) |
          __float_as_uint(own_scales[1]));
  float part[2][4] = {};
#pragma unroll
  for (int u = 0; u < 2; ++u) {
    const half* x = input.x + 16 * (lane % 4) + 64 * u;
    const uint4 first = *reinterpret_cast<const uint4*>(x), second = *reinterpret_cast<const uint4*>(x + 8);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint2 a = halves_of_float8(word_of(upper[u], i)), b = halves_of_float8(word_of(lower[u], i));
      const uint4& v = i < 2 ? first : second;
      mma(part[i % 2], a.x, b.x, a.y, b.y, i % 2 ? v.z : v.x, i % 2 ? v.w : v.y);
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) acc[r] += input.scale * own_scales[r] * (part[0][2 * r] + part[1][2 * r]);
}

// Adds a step of one unit to the lane's sums of rows g and g + 8.
template <class C, int kPhase, class Release>
__device__ __forceinline__ void multiply(float (&acc)[2], const char* unit, const char* input, int part, int lane,
                                         const uint32_t* table, Release&& release) {
  constexpr PhasePlan kPlan = plan_of(C::kShape, kPhase);
  constexpr WeightKind kKind = C::kShape.kinds[first_weight(kPhase)];
  if constexpr (kKind.is_float8()) {
    constexpr int kStride = row_bytes(kPlan.parts);
    const char* const scales = unit + kTileRows * kStride + (part * kTileRows + lane / 4) * 4;
    multiply_float8(acc, unit + lane / 4 * kStride + part * kTileCols + lane % 4 * 16, kStride,
                    reinterpret_cast<const float*>(scales), *reinterpret_cast<const Float8Input*>(input), lane,
                    release);
  } else {
    multiply_codes<Kind<kKind.layout, kKind.has_min, kKind.group16>>(
        acc, unit + part * kKind.code_bytes(), unit + kPlan.parts * kKind.code_bytes() + part * kKind.scale_bytes(),
        *reinterpret_cast<const CodesInput*>(input), lane, table, release);
  }
}

// Runs up to at_once units side by side; sums: [gates, kWarps, 16].
template <class C, int kPhase>
__device__ __forceinline__ void use_units(const Block<C>& b, Ring<C>& ring, int unit, int n_units, float* sums) {
  constexpr PhasePlan kPlan = plan_of(C::kShape, kPhase);
  constexpr WeightKind kKind = C::kShape.kinds[first_weight(kPhase)];
  constexpr int kGates = kPhase == kGateUp ? 2 : 1, kChunks = kPlan.n_chunks / kPlan.n_planes;
  constexpr bool kWhole = kPlan.parts * kPlan.n_chunks == kPlan.n_steps && kPlan.at_once == 1 && kPlan.parts == kWarps;
  const int local = kPlan.at_once == 1 ? 0 : b.warp / kPlan.parts,
            part = kPlan.at_once == 1 && kPlan.parts == kWarps ? b.warp : b.warp % kPlan.parts;
  const bool has_unit = kWhole || (b.warp < kPlan.parts * kPlan.at_once && local < n_units);
  const int first = first_chunk<C, kPhase>(unit);
  const char* const slots = b.shared + Ring<C>::kAt.ring + local * kPlan.unit_bytes;
  const char* input = b.template input<kPhase>() + first * kKind.input_bytes();
  float acc[kGates][2] = {};
#pragma unroll(kChunks <= 4 ? kChunks : 2)
  for (int chunk = 0; chunk < kChunks; ++chunk, input += kKind.input_bytes()) {
    const bool has_step = kWhole || (has_unit && (first + chunk) * kPlan.parts + part < kPlan.n_steps);
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
      ring.await_copy();
      const auto release = [&](uint32_t words) { ring.release(words, b.lane); };  // as early as possible
      if (has_step) {
        multiply<C, kPhase>(acc[gate], slots + ring.slot * Ring<C>::kAt.slot_bytes, input, part, b.lane, b.table,
                            release);
      } else {
        release(0);
      }
      ring.advance();
    }
  }
#pragma unroll
  for (int gate = 0; gate < kGates; ++gate)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float v = acc[gate][r];
      if constexpr (!kKind.is_float8()) {
        v += __shfl_xor_sync(0xFFFFFFFFu, v, 1);
        v += __shfl_xor_sync(0xFFFFFFFFu, v, 2);
      }
      if (b.lane % 4 == 0) sums[(gate * kWarps + b.warp) * kTileRows + b.lane / 4 + 8 * r] = v;
    }
}

// Takes new values of the residual stream, and ignores them.
struct NoSink {
  static constexpr bool kTakes = false;
  __device__ __forceinline__ void put(int, int, int, float, float) const {}
};

// Adds up the sums of the warps. Thread o writes output o of a batch of a row's units. squares: of the row's columns of
// each warp. `residual`: added to the output of kOut and kDown. norm: the weight of the next norm for output o.
template <class C, int kPhase, class Sink>
__device__ __forceinline__ void finish(const Block<C>& b, const Layer& layer, int token, int first_unit, int n_units,
                                       const float* sums, const float* squares_of_warps, float residual, float norm,
                                       const Sink& sink) {
  constexpr PhasePlan kPlan = plan_of(C::kShape, kPhase);
  constexpr Shape kShape = C::kShape;
  const Params& p = b.p;
  const int o = static_cast<int>(threadIdx.x);
  if (o >= n_units * kTileRows) return;
  const int unit = first_unit + o / kTileRows, row = o % kTileRows, group = o / kTileRows / kPlan.at_once,
            in_group = o / kTileRows % kPlan.at_once;
  const Place at = place_of<C, kPhase>(unit);
  const LayerProduct* w = layer.products + at.weight;
  const int out = at.tile * kTileRows + row;
  const float* from = sums + (group * (kPhase == kGateUp ? 2 : 1) * kWarps + in_group * kPlan.parts) * kTileRows + row;
  float total[2] = {0, 0}, inverse = 1;
#pragma unroll
  for (int part = 0; part < kPlan.parts; ++part) {
    total[0] += from[part * kTileRows];
    if constexpr (kPhase == kGateUp) total[1] += from[(kWarps + part) * kTileRows];
  }
  if constexpr (kPhase == kQkv || kPhase == kGateUp) {
    float squares = 0;
#pragma unroll
    for (int part = 0; part < kPlan.parts; ++part) squares += squares_of_warps[part];
    inverse = rsqrtf(squares / static_cast<float>(kPlan.n_in) + p.eps);
  }
  total[0] *= w->factor * inverse;
  if constexpr (kPhase == kOut || kPhase == kDown) {
    total[0] += residual;
    p.x[token * p.x_stride + first_unit * kTileRows + o] = total[0];
    sink.put(unit, token, row, total[0], norm);
  } else if constexpr (kPhase == kGateUp) {
    const float weight = kShape.n_experts > 0 ? b.choice[token].weights[out / kShape.ffn] : 1.0f;
    p.hidden[token * kShape.hidden() + out] =
        from_float<half>(weight * act_mul(total[0], total[1] * (w[1].factor * inverse), kShape.act));
  } else {
    constexpr int kCols = (kShape.n_heads + 2 * kShape.n_kv_heads) * kShape.head_dim;
    const int plane = kPlan.n_planes == 1 ? 0 : unit % 2;
    if (kShape.biases && plane == 0 && w->bias != nullptr) total[0] += w->bias[out];
    p.heads[plane * kCols + unit / kPlan.n_planes * kTileRows + row] = total[0];
  }
}

// One product of a layer, for one row after another. ready() waits for the input. sink takes the outputs of kOut.
template <class C, int kPhase, class Ready, class Sink>
__device__ __forceinline__ void product(const Block<C>& b, Ring<C>& ring, const Layer& layer, Ready&& ready,
                                        const Sink& sink) {
  constexpr PhasePlan kPlan = plan_of(C::kShape, kPhase);
  constexpr bool kAdds = kPhase == kOut || kPhase == kDown;
  const Params& p = b.p;
  const RowUnits<C, kPhase> units(p.n_rows);
  const Input<C, kPhase> input(b, kPhase == kQkv ? layer.attention_norm : layer.ffn_norm);
  const auto squares_of = [&](int row) { return b.squares + row % 2 * kWarps; };
  const auto stage = [&](int row) {
    if constexpr (kAdds) {
      input.stage((kPhase == kOut ? p.attended : p.hidden) + row * kPlan.n_in, squares_of(row));
    } else {
      input.stage(p.x + row * p.x_stride, squares_of(row));
    }
  };
  ready();
  Run run = units.run(units.first);
  if (units.first < units.end) stage(run.row);
  constexpr int kBatch = kPlan.batch, kGroupSums = (kPhase == kGateUp ? 2 : 1) * kWarps * kTileRows;
  int turn = 0;
#pragma unroll 1
  for (int at = units.first; at < units.end;) {
#pragma unroll 1
    for (int first = run.first; first < run.end; first += kBatch, turn ^= 1) {
      const int n_units = min(kBatch, run.end - first), o = static_cast<int>(threadIdx.x);
      const float residual =
          kAdds && o < n_units * kTileRows ? __ldcg(p.x + run.row * p.x_stride + first * kTileRows + o) : 0.0f;
      const float norm = kPhase == kOut && Sink::kTakes && o < n_units * kTileRows
                             ? __ldg(layer.ffn_norm + first * kTileRows + o)
                             : 0.0f;
      float* const sums = b.template sums<kPhase>(turn);
#pragma unroll 1
      for (int unit = 0; unit < n_units; unit += kPlan.at_once)
        use_units<C, kPhase>(b, ring, first + unit, min(kPlan.at_once, n_units - unit),
                             sums + unit / kPlan.at_once * kGroupSums);
      sync_block();
      finish<C, kPhase>(b, layer, run.row, first, n_units, sums, squares_of(run.row), residual, norm, sink);
    }
    at = units.end_of(run);
    if (!C::kShape.has_rows() || at >= units.end) break;
    run = units.run(at);
    stage(run.row);
  }
}

}  // namespace ingot::cuda::grid
