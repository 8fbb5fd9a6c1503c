#include "backend/kv.h"

#include "base/error.h"

namespace ingot {

DType parse_kv_type(const std::string& name) {
  if (name == "f16") return DType::kF16;
  if (name == "bf16") return DType::kBF16;
  if (name == "f32") return DType::kF32;
  if (name == "q8_0") return DType::kQ8_0;
  if (name == "q4_0") return DType::kQ4_0;
  if (name == "fp8" || name == "fp8_e4m3" || name == "f8_e4m3") return DType::kE4M3;
  throw UsageError("unknown KV cache type '{}': use f16, bf16, f32, q8_0, q4_0 or fp8", printable(name));
}

}  // namespace ingot
