// The demo model with its matrices in another format, and its perplexity on its held-out text. Formats without an encoder
// in ingot get random blocks, and the perplexity of noise.
#pragma once
#include <cmath>
#include <list>

#include "golden_models.h"
#include "model/checkpoint.h"
#include "quant/encode.h"
#include "quant/fill.h"

namespace ingot {

inline const std::string kDemo = std::string(INGOT_TEST_DATA) + "/../../models/demo.gguf";

// The demo model with other blocks in each matrix.
class Rewritten final : public WeightSource {
 public:
  Rewritten(std::shared_ptr<const Gguf> file, Format format) : file_(gguf_source(std::move(file))), format_(format) {}
  std::string name() const override { return "the demo model"; }
  size_t total_bytes() const override { return file_->total_bytes(); }
  bool find(const std::string& name, int64_t n_out, int64_t n_in, HostTensor& out) override {
    if (!file_->find(name, n_out, n_in, out)) return false;
    if (out.n_out == 1) return true;  // a vector
    std::vector<uint8_t>& bytes = kept_.emplace_back(static_cast<size_t>(out.n_out) * row_bytes(format_, out.n_in));
    if (!info(format_).can_encode) {
      fill_random(format_, kept_.size(), bytes.data(), out.n_out * out.n_in / info(format_).block_size, 1.0f / std::sqrt(static_cast<float>(out.n_in)));
    } else {
      std::vector<float> row(static_cast<size_t>(out.n_in));
      for (int64_t i = 0; i < out.n_out; ++i) {
        decode_row(out.format, out.data + i * row_bytes(out.format, out.n_in), row.data(), out.n_in);
        encode_row(format_, row.data(), bytes.data() + static_cast<size_t>(i) * row_bytes(format_, out.n_in), out.n_in);
      }
    }
    out = {.format = format_, .n_out = out.n_out, .n_in = out.n_in, .data = bytes.data()};
    return true;
  }

 private:
  std::unique_ptr<WeightSource> file_;
  const Format format_;
  std::list<std::vector<uint8_t>> kept_;
};

inline std::vector<int32_t> heldout_tokens() {
  const std::string text = read_file(std::string(INGOT_TEST_DATA) + "/demo/heldout.txt");
  return open_checkpoint(kDemo)->tokenizer()->encode(text, {});
}

inline double demo_perplexity(Format format, const BackendOptions& backend, const std::vector<int32_t>& tokens, int n_windows) {
  constexpr int kWindow = 128;
  const auto file = std::make_shared<const Gguf>(Gguf::open(kDemo));
  Ranks runner(config_from_gguf(*file), std::make_unique<Rewritten>(file, format),
               {.backend = backend, .n_ctx = kWindow, .max_batch_tokens = kWindow, .max_logits = kWindow}, nullptr);
  return perplexity(runner, tokens, kWindow, n_windows, -1, nullptr).value;
}

inline std::vector<Format> all_formats() {
  std::vector<Format> all;
  for (int i = 0; i < kFormatCount; ++i) all.push_back(static_cast<Format>(i));
  return all;
}

}  // namespace ingot
