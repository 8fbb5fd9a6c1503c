#include "backend/kv.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"

namespace ingot {

// kv_type_name returns the first name of a type. Keys need more bits than values (docs/formats.md), so q4_0/q8_0 has no
// name.
constexpr std::pair<const char*, KvTypes> kTypes[] = {
    {"f16", DType::kF16},   {"bf16", DType::kBF16},     {"f32", DType::kF32},
    {"q8_0", DType::kQ8_0}, {"q4_0", DType::kQ4_0},     {"q8_0/q4_0", {DType::kQ8_0, DType::kQ4_0}},
    {"fp8", DType::kE4M3},  {"fp8_e4m3", DType::kE4M3}, {"f8_e4m3", DType::kE4M3}};

std::string kv_type_name(KvTypes types) {
  if (types.differ()) return kv_type_name(types.keys) + "/" + kv_type_name(types.values);
  return std::ranges::find(kTypes, types, &std::pair<const char*, KvTypes>::second)->first;
}

KvTypes parse_kv_type(const std::string& name) {
  for (const auto& [known, types] : kTypes)
    if (name == known) return types;
  throw UsageError("unknown KV cache type '{}': use f16, bf16, f32, q8_0, q4_0, q8_0/q4_0 (keys/values) or fp8",
                   printable(name));
}

void KvCache::copy_block(int32_t from, int32_t to) {
  std::vector<uint8_t> bytes(block_bytes());
  read_block(from, bytes);
  write_block(to, bytes);
}

}  // namespace ingot
