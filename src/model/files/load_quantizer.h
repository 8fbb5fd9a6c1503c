// Quantization while a model is loaded (--quantize): each matrix that is stored as F32, F16 or BF16 is encoded to the
// format that a mix chooses, before the backend prepares the matrix. Matrices that are already quantized stay as they
// are, because a second quantization would lose more.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/threads.h"
#include "model/files/quant_mix.h"
#include "model/files/weights.h"

namespace ingot {

class LoadQuantizer {
 public:
  // type: "fp8" (F8_E4M3 in the layers, the embedding and the output as stored), or a mix such as "Q8_0" or "Q4_K_M"
  // (quant_mix.h). Throws UsageError that lists the names.
  LoadQuantizer(std::string_view type, const MixModel& model);

  // The format of the matrix with this GGUF name; `stored` if the matrix stays as it is.
  Format format_of(std::string_view gguf_name, Format stored, int64_t n_in) const;

  // All rows of host in another format. Throws Error naming the matrix if a number is not finite or too large.
  std::vector<uint8_t> encode(const HostTensor& host, Format format, const std::string& name) const;

 private:
  const Mix& mix_;
  const MixModel model_;
  const std::unique_ptr<ThreadPool> pool_;
};

// Wraps the source: matrices get the formats of `type` when they are loaded. Returns the source itself if `type` is "".
std::unique_ptr<WeightSource> quantized_source(std::unique_ptr<WeightSource> source, const Config& config,
                                               const std::string& type);

}  // namespace ingot
