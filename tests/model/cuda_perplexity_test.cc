// The demo model's perplexity on its held-out text on the GPU, with its matrices in each format in turn, against ref
// with the same bytes: equal within half a per cent, or within two where activations become FP8. Formats without an encoder in ingot get random blocks, and the
// perplexity of noise. Skipped if the build has no CUDA or the machine no GPU.
#include <gtest/gtest.h>

#include <list>

#include "base/error.h"
#include "golden_models.h"
#include "model/checkpoint.h"
#include "quant/encode.h"
#include "quant/fill.h"

namespace ingot {
namespace {

const std::string kDemo = std::string(INGOT_TEST_DATA) + "/../../models/demo.gguf";

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

class CudaPerplexity : public testing::TestWithParam<Format> {
 protected:
  void SetUp() override {
    try {
      create_backend({.device = "cuda"});
    } catch (const UsageError&) {
      GTEST_SKIP() << "no GPU";
    }
  }
  static double perplexity_on(const char* device, const std::vector<int32_t>& tokens, const char* activations = "") {
    constexpr int kWindow = 128, kWindows = 4;
    const auto file = std::make_shared<const Gguf>(Gguf::open(kDemo));
    Ranks runner(config_from_gguf(*file), std::make_unique<Rewritten>(file, GetParam()),
                 {.backend = {.device = device, .activations = activations}, .n_ctx = kWindow, .max_batch_tokens = kWindow, .max_logits = kWindow}, nullptr);
    return perplexity(runner, tokens, kWindow, kWindows, -1, nullptr).value;
  }
};

TEST_P(CudaPerplexity, IsThatOfRef) {
  const std::vector<int32_t> tokens = open_checkpoint(kDemo)->tokenizer()->encode(read_file(std::string(INGOT_TEST_DATA) + "/demo/heldout.txt"), {});
  const double want = perplexity_on("ref", tokens), got = perplexity_on("cuda", tokens);
  RecordProperty("ref", fmt::format("{:.4f}", want));
  RecordProperty("cuda", fmt::format("{:.4f}", got));
  EXPECT_NEAR(got / want, 1, GetParam() == Format::F8_E4M3 ? 0.02 : 0.005) << got << " for " << want;
  if (GetParam() != Format::F8_E4M3) return;
  const double with_halves = perplexity_on("cuda", tokens, "f16");
  EXPECT_NEAR(with_halves / want, 1, 0.005) << with_halves << " for " << want;
}

std::vector<Format> formats() {
  std::vector<Format> all;
  for (int i = 0; i < kFormatCount; ++i) all.push_back(static_cast<Format>(i));
  return all;
}
INSTANTIATE_TEST_SUITE_P(Formats, CudaPerplexity, testing::ValuesIn(formats()), [](const auto& i) { return std::string(ingot::info(i.param).name); });

}  // namespace
}  // namespace ingot
