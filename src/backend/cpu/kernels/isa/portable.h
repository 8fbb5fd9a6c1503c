// No instructions beyond those that every machine of its kind has.
#pragma once

namespace ingot::cpu::INGOT_ISA {
constexpr int W = 4;
}
#include "backend/cpu/kernels/isa/plain.h"

namespace ingot::cpu::INGOT_ISA {

constexpr int kQuantTile = 4, kDenseTile = 6, kInt16Tile = 0;  // see tables.h
constexpr int kActQuads = 1;
constexpr bool kSignedCodes = true, kAddsPairs = false, kMultipliesByLane = false;
constexpr bool kBf16Dot = false, kBf16Blocks = false;

using namespace plain;

}  // namespace ingot::cpu::INGOT_ISA
#include "backend/cpu/kernels/isa/plain_group.h"
