// The demo model with its matrices in another format, and its perplexity on its held-out text. Formats without an
// encoder in ingot get random blocks, and the perplexity of noise.
#pragma once
#include <cmath>
#include <list>
#include <map>

#include "golden_models.h"
#include "model/files/checkpoint.h"
#include "quant/encode.h"
#include "quant/fill.h"

namespace ingot {

inline const std::string kDemo = std::string(INGOT_TEST_DATA) + "/../../models/demo.gguf";

// The blocks of the demo model's matrices in one format, made when a run first asks for them.
class Rewritten {
 public:
  explicit Rewritten(Format format) : format_(format) {}
  Format format() const { return format_; }

  const std::vector<uint8_t>& blocks(const std::string& name, const HostTensor& matrix) {
    std::vector<uint8_t>& bytes = blocks_[name];
    if (!bytes.empty()) return bytes;
    bytes.resize(static_cast<size_t>(matrix.n_out) * row_bytes(format_, matrix.n_in));
    if (!info(format_).can_encode) {
      fill_random(format_, blocks_.size(), bytes.data(), matrix.n_out * matrix.n_in / info(format_).block_size,
                  1.0f / std::sqrt(static_cast<float>(matrix.n_in)));
      return bytes;
    }
    std::vector<float> row(static_cast<size_t>(matrix.n_in));
    for (int64_t i = 0; i < matrix.n_out; ++i) {
      decode_row(matrix.format, matrix.data + i * row_bytes(matrix.format, matrix.n_in), row.data(), matrix.n_in);
      encode_row(format_, row.data(), bytes.data() + static_cast<size_t>(i) * row_bytes(format_, matrix.n_in),
                 matrix.n_in);
    }
    return bytes;
  }

 private:
  const Format format_;
  std::map<std::string, std::vector<uint8_t>> blocks_;
};

// The demo model with other blocks in each matrix, or with the numbers of these blocks as F32.
class RewrittenSource final : public WeightSource {
 public:
  RewrittenSource(std::shared_ptr<const Gguf> file, std::shared_ptr<Rewritten> matrices, bool decoded)
      : file_(gguf_source(std::move(file))), matrices_(std::move(matrices)), decoded_(decoded) {}
  std::string name() const override { return "the demo model"; }
  size_t total_bytes() const override { return file_->total_bytes(); }
  bool find(const std::string& name, int64_t n_out, int64_t n_in, HostTensor& out) override {
    if (!file_->find(name, n_out, n_in, out)) return false;
    if (out.n_out == 1) return true;  // a vector
    const std::vector<uint8_t>& blocks = matrices_->blocks(name, out);
    out = {.format = matrices_->format(), .n_out = out.n_out, .n_in = out.n_in, .data = blocks.data()};
    if (!decoded_) return true;
    std::vector<float>& numbers = numbers_.emplace_back(static_cast<size_t>(out.n_out * out.n_in));
    decode_row(out.format, out.data, numbers.data(), out.n_out * out.n_in);
    out.format = Format::F32;
    out.data = reinterpret_cast<const uint8_t*>(numbers.data());
    return true;
  }

 private:
  std::unique_ptr<WeightSource> file_;
  std::shared_ptr<Rewritten> matrices_;
  const bool decoded_;
  std::list<std::vector<float>> numbers_;
};

inline std::vector<int32_t> heldout_tokens() {
  const std::string text = read_file(std::string(INGOT_TEST_DATA) + "/demo/heldout.txt");
  return open_checkpoint(kDemo)->tokenizer()->encode(text, {});
}

// Over windows of 128 tokens; the second half of each is scored. n_windows = 0: all windows.
inline double demo_perplexity(const std::shared_ptr<Rewritten>& matrices, const BackendOptions& backend,
                              const std::vector<int32_t>& tokens, int n_windows, bool decoded = false) {
  constexpr int kWindow = 128;
  const auto file = std::make_shared<const Gguf>(Gguf::open(kDemo));
  Ranks runner(config_from_gguf(*file), std::make_unique<RewrittenSource>(file, matrices, decoded),
               {.backend = backend, .n_ctx = kWindow, .max_batch_tokens = kWindow, .max_logits = kWindow}, nullptr);
  return perplexity(runner, tokens, kWindow, n_windows, -1, nullptr).value;
}

inline std::vector<Format> all_formats() {
  std::vector<Format> all;
  for (int i = 0; i < kFormatCount; ++i) all.push_back(static_cast<Format>(i));
  return all;
}

}  // namespace ingot
