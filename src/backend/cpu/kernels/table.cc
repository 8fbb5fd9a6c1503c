// The kernel table of one instruction set: ingot::cpu::<ISA>::kKernels.
#include "backend/cpu/kernels/simd.h"
#include "backend/cpu/kernels/tables.h"

#define INGOT_STRING_OF(x) #x
#define INGOT_STRING(x) INGOT_STRING_OF(x)

namespace ingot::cpu::INGOT_ISA {

extern const RecurrenceKernels kRecurrence;
extern const Kernels kKernels;
const Kernels kKernels = {
    .isa = INGOT_STRING(INGOT_ISA),
    .quant_tile = kQuantTile,
    .dense_tile = kDenseTile,
    .int16_tile = kInt16Tile,
    .unpacks_bytes = kAddsPairs,
    .signed_codes = kSignedCodes,
    .bf16_dot = kBf16Dot,
    .quant_tiles = kQuantTiles.of,
    .file_blocks = kFileBlocks,
    .dense_tiles = kDenseTiles,
    .block_tiles = nullptr,
    .block_runs = nullptr,
    .block_tile = 0,
    .byte_unit = nullptr,
    .pack_activations = pack_activations,
    .matmul = matmul,
    .gate_up = gate_up,
    .norm = norm,
    .add = add,
    .add_scaled = add_scaled,
    .act_mul = act_mul,
    .act = act,
    .scale = scale,
    .hadamard = hadamard,
    .rope = rope,
    .write_kv = write_kv,
    .attention = attention,
    .merge_attention = merge_attention,
    .peak_read = peak_read,
    .peak_f32 = peak_f32,
    .peak_bf16 = peak_bf16,
    .peak_int16 = peak_int16,
    .peak_int8 = peak_int8,
    .recurrence = &kRecurrence,
};

}  // namespace ingot::cpu::INGOT_ISA
