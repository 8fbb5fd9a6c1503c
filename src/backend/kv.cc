#include "backend/kv.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace ingot {

// kv_type_name returns the first name of a type.
constexpr std::pair<const char*, DType> kTypes[] = {{"f16", DType::kF16},
                                                    {"bf16", DType::kBF16},
                                                    {"f32", DType::kF32},
                                                    {"q8_0", DType::kQ8_0},
                                                     {"q4_0", DType::kQ4_0},
                                                    {"fp8", DType::kE4M3},
                                                    {"fp8_e4m3", DType::kE4M3},
                                                    {"f8_e4m3", DType::kE4M3}};

std::string kv_type_name(DType dtype) {
  return std::ranges::find(kTypes, dtype, &std::pair<const char*, DType>::second)->first;
}

DType parse_kv_type(const std::string& name) {
  for (const auto& [known, dtype] : kTypes)
    if (name == known) return dtype;
  throw UsageError("unknown KV cache type '{}': use f16, bf16, f32, q8_0, q4_0 or fp8", printable(name));
}

}  // namespace ingot
