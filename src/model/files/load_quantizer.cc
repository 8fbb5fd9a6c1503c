#include "model/files/load_quantizer.h"

#include <atomic>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "model/files/tensor_finder.h"
#include "model/files/wrapped_source.h"
#include "quant/encode.h"

namespace ingot {
namespace {

constexpr int64_t kElementsPerTask = 1 << 15;
constexpr float kLargestF16 = 65504;  // scales of most formats are f16

// No file has this mix, so it has no file type.
constexpr Mix kFp8{"fp8", 0, Format::F8_E4M3};
// As in FP8 checkpoints, the embedding and the output stay as they are.
constexpr MixOptions kFp8Options{.output = Format::F32, .embedding = Format::F32};

bool is_dense(Format format) { return info(format).block_size == 1; }

const Mix& mix_of(std::string_view type) {
  if (type == "fp8" || type == "FP8") return kFp8;
  try {
    return find_mix(type);
  } catch (const UsageError&) {
    throw UsageError("quantize: unknown type '{}': use fp8 or one of {}", printable(type, 64), mix_names());
  }
}

void encode(Format format, const float* x, uint8_t* row, int64_t n) {
  format == Format::F8_E4M3 ? encode_float8_row(x, row, n) : encode_row(format, x, row, n);
}

// The first number of a row that the format cannot hold.
const float* bad_number(const std::vector<float>& row, Format format) {
  const bool has_f32_scale = format == Format::F32 || format == Format::BF16 || format == Format::F8_E4M3;
  const float max_size = has_f32_scale ? std::numeric_limits<float>::max() : kLargestF16;
  for (const float& x : row)
    if (!(std::fabs(x) <= max_size)) return &x;
  return nullptr;
}

class QuantizedSource final : public WrappedSource {
 public:
  QuantizedSource(std::unique_ptr<WeightSource> source, const std::string& type, const MixModel& model)
      : WrappedSource(std::move(source)), type_(type), model_(model), quantizer_(type, model) {}
  std::unique_ptr<WeightSource> again() const override {
    return std::make_unique<QuantizedSource>(inner().again(), type_, model_);
  }
  const LoadQuantizer* quantizer() const override { return &quantizer_; }
  WeightSource& plain() { return inner(); }

 private:
  const std::string type_;
  const MixModel model_;
  const LoadQuantizer quantizer_;
};

// Throws Error if no matrix of the first layer gets another format.
void check_changes(QuantizedSource& source, const Config& config, const std::string& type) {
  TensorFinder finder(source, config, true);
  std::string stored;
  for (const PartKind* kind : parts_of(config, 0))
    for (const MatrixRow& row : kind->rows().matrices) {
      HostTensor plain, quantized;
      if (!applies(row, config, 0) || !finder.find(row, 0, quantized)) continue;
      if (!TensorFinder(source.plain(), config, true).find(row, 0, plain) || plain.format != quantized.format) return;
      stored = info(plain.format).name;
    }
  throw Error(
      "{}: quantizing to {} changes nothing, because the matrices are already {}: load the model without quantizing it",
      source.name(), type, stored);
}

}  // namespace

LoadQuantizer::LoadQuantizer(std::string_view type, const MixModel& model)
    : mix_(mix_of(type)), model_(model), pool_(std::make_unique<ThreadPool>()) {}

Format LoadQuantizer::format_of(std::string_view gguf_name, Format stored, int64_t n_in) const {
  if (!is_dense(stored) || !is_quantizable(gguf_name, 2)) return stored;
  const MixOptions options = &mix_ == &kFp8 ? kFp8Options : MixOptions{};
  const Format format = choose_format(mix_, options, model_, gguf_name, n_in);
  // A quantized mix chooses a dense format for rows that no block fits, and for matrices that it does not quantize.
  return is_dense(format) && !is_dense(mix_.base) ? stored : format;
}

std::vector<uint8_t> LoadQuantizer::encode(const HostTensor& host, Format format, const std::string& name) const {
  const int64_t rows_per_task = std::max<int64_t>(1, kElementsPerTask / host.n_in);
  const size_t from_bytes = row_bytes(host.format, host.n_in), to_bytes = row_bytes(format, host.n_in);
  std::vector<uint8_t> out(static_cast<size_t>(host.n_out) * to_bytes);
  std::vector<std::vector<float>> rows(static_cast<size_t>(pool_->size()),
                                       std::vector<float>(static_cast<size_t>(host.n_in)));
  std::atomic<int64_t> bad_row{-1};
  pool_->parallel_for((host.n_out + rows_per_task - 1) / rows_per_task, [&](int64_t task, int thread) {
    std::vector<float>& row = rows[static_cast<size_t>(thread)];
    const int64_t begin = task * rows_per_task, end = std::min(begin + rows_per_task, host.n_out);
    for (int64_t i = begin; i < end; ++i) {
      decode_row(host.format, host.data + static_cast<size_t>(i) * from_bytes, row.data(), host.n_in);
      if (bad_number(row, format) != nullptr) {
        bad_row = i;
      } else {
        ingot::encode(format, row.data(), out.data() + static_cast<size_t>(i) * to_bytes, host.n_in);
      }
    }
  });
  if (bad_row >= 0) {
    std::vector<float>& row = rows[0];
    decode_row(host.format, host.data + static_cast<size_t>(bad_row) * from_bytes, row.data(), host.n_in);
    throw Error("tensor '{}', row {}: {} cannot be quantized to {}: load the model without quantizing it", name,
                bad_row.load(), *bad_number(row, format), info(format).name);
  }
  return out;
}

std::unique_ptr<WeightSource> quantized_source(std::unique_ptr<WeightSource> source, const Config& config,
                                               const std::string& type) {
  if (type.empty()) return source;
  HostTensor output;
  const bool has_output =
      config.tied_output != true && TensorFinder(*source, config, true).find(output_row(), 0, output);
  const MixModel model{.n_layers = config.n_layers,
                       .heads_per_kv = config.n_heads / config.n_kv_heads,
                       .tied = !has_output,
                       .is_large = config.n_layers == 80 && config.n_heads != config.n_kv_heads};
  auto quantized = std::make_unique<QuantizedSource>(std::move(source), type, model);
  check_changes(*quantized, config, type);
  return quantized;
}

}  // namespace ingot
