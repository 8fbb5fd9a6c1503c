#include "model/speech/speech_formats.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <list>
#include <optional>

#include "base/error.h"
#include "base/half.h"
#include "model/files/wrapped_source.h"
#include "quant/encode.h"

namespace ingot {
namespace {

bool is_dense(Format format) { return format == Format::F32 || format == Format::F16 || format == Format::BF16; }

// Whether a product reads the tensor.
bool is_matrix(const std::string& name) {
  return std::ranges::any_of(
      std::initializer_list<const char*>{"_proj.weight", ".fc1.weight", ".fc2.weight", ".embed_tokens.weight"},
      [&](const char* end) { return name.ends_with(end); });
}

class ReformattedSpeech final : public WrappedSource {
 public:
  ReformattedSpeech(std::unique_ptr<WeightSource> inner, std::optional<Format> format)
      : WrappedSource(std::move(inner)), format_(format) {}

  bool find(const std::string& name, int64_t n_out, int64_t n_in, HostTensor& out) override {
    if (!inner().find(name, n_out, n_in, out)) return false;
    if (!is_matrix(name) || !is_dense(out.format) || out.n_out != n_out || out.n_in != n_in) return true;
    if (format_ && n_in % info(*format_).block_size == 0) {
      quantize(*format_, name, out);
    } else if (out.format == Format::F32) {
      narrow(out);
    }
    return true;
  }

  void release(const HostTensor& tensor) override {
    if (copies_.remove_if([&](const auto& copy) { return copy.data() == tensor.data; }) == 0) inner().release(tensor);
  }

 private:
  void take(HostTensor& host, Format format, std::vector<uint8_t> bytes) {
    inner().release(host);
    host.format = format, host.data = copies_.emplace_back(std::move(bytes)).data();
  }

  void quantize(Format format, const std::string& name, HostTensor& host) {
    const size_t from_bytes = row_bytes(host.format, host.n_in), to_bytes = row_bytes(format, host.n_in);
    std::vector<uint8_t> bytes(static_cast<size_t>(host.n_out) * to_bytes);
    std::vector<float> row(static_cast<size_t>(host.n_in));
    for (int64_t i = 0; i < host.n_out; ++i) {
      decode_row(host.format, host.data + static_cast<size_t>(i) * from_bytes, row.data(), host.n_in);
      for (const float x : row)
        if (!std::isfinite(x))
          throw Error("{}: tensor '{}' has {} at row {}: the file is damaged: download it again", this->name(),
                      printable(name), x, i);
      encode_row(format, row.data(), bytes.data() + static_cast<size_t>(i) * to_bytes, host.n_in);
    }
    take(host, format, std::move(bytes));
  }

  void narrow(HostTensor& host) {
    const auto n = static_cast<size_t>(host.n_out * host.n_in);
    std::vector<uint8_t> bytes(n * 2);
    for (size_t i = 0; i < n; ++i) {
      float x;
      std::memcpy(&x, host.data + i * sizeof x, sizeof x);
      const uint16_t half = f16_from_float(x);
      if (std::bit_cast<uint32_t>(float_from_f16(half)) != std::bit_cast<uint32_t>(x)) return;
      std::memcpy(bytes.data() + i * sizeof half, &half, sizeof half);
    }
    take(host, Format::F16, std::move(bytes));
  }

  const std::optional<Format> format_;
  std::list<std::vector<uint8_t>> copies_;
};

}  // namespace

std::unique_ptr<WeightSource> reformatted_speech(std::unique_ptr<WeightSource> source, const std::string& name) {
  std::optional<Format> format;
  if (!name.empty()) {
    format = format_from_name(name);
    if (!format || !info(*format).can_encode || is_dense(*format))
      throw UsageError("speech models cannot be quantized to {}: expected a type of blocks, such as q8_0 or q5_0",
                       printable(name, 32));
  }
  return std::make_unique<ReformattedSpeech>(std::move(source), format);
}

}  // namespace ingot
