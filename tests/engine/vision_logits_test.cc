// Prompts with images through the engine: the logits equal those of transformers for any chunk.
#include <gtest/gtest.h>

#include "collector.h"
#include "engine/engine.h"
#include "model/export/gguf_export.h"
#include "model/export/quantize.h"
#include "model/vision/vision_goldens.h"

namespace ingot {
namespace {

class VisionLogits : public testing::TestWithParam<std::string> {};

class CudaVisionLogits : public VisionLogits {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no GPU";
  }
};

std::map<int, std::vector<float>> image_logits(LoadedModel& model, const nlohmann::json& golden, int chunk) {
  Request request;
  std::vector<EncodedMedia> encoded;
  for (const PreparedMedia& image : prepared_images(*model.vision, golden))
    encoded.push_back(model.vision->encode(image));
  request.prompt = golden["tokens"].get<std::vector<int32_t>>();
  request.embeddings = model.vision->place(request.prompt, encoded);
  request.max_tokens = 1;
  request.prompt_logprobs = 0;
  request.wants_logits = true;
  Engine engine(*model.runner, {.chunk = chunk, .prefix_cache = false});
  const auto sink = submit(engine, std::move(request));
  run(engine);
  EXPECT_TRUE(sink->finish && sink->finish->error.empty()) << sink->finish->error;
  return sink->logits;
}

void expect_logits(LoadedModel& model, const nlohmann::json& golden, int chunk, const std::string& device) {
  const auto logits = image_logits(model, golden, chunk);
  std::vector<float> got, expected;
  for (size_t i = 0; i < golden["logit_rows"].size(); ++i) {
    const std::vector<float>& row = logits.at(golden["logit_rows"][i]);
    got.insert(got.end(), row.begin(), row.end());
    for (const float value : golden["logits"][i]) expected.push_back(value);
  }
  EXPECT_LT(largest_difference(got, expected), allowed_error(device) * deviation(expected))
      << device << ", chunks of " << chunk << ": " << golden["text"];
}

TEST_P(VisionLogits, EqualTransformersForAnyChunk) {
  const nlohmann::json goldens = vision_golden(GetParam());
  ASSERT_GE(goldens["prompts"].size(), 2u);
  for (const std::string device : {"ref", "cpu"}) {
    LoadedModel model = load_vision(kVisionModels / GetParam(), device, false);
    for (const auto& golden : goldens["prompts"])
      for (const int chunk : {64, 7, 1}) expect_logits(model, golden, chunk, device);
  }
}

// With f32 activations, so that the bound is that of the other backends.
TEST_P(CudaVisionLogits, EqualTransformersForAnyChunk) {
  const nlohmann::json goldens = vision_golden(GetParam());
  LoadedModel model = load_vision(kVisionModels / GetParam(), "cuda", false);
  for (const auto& golden : goldens["prompts"])
    for (const int chunk : {64, 7, 1}) expect_logits(model, golden, chunk, "cuda");
}

// The text model as a GGUF file, and the tower as an mmproj file.
TEST_P(VisionLogits, EqualTransformersFromTwoFiles) {
  const nlohmann::json goldens = vision_golden(GetParam());
  const std::string path = testing::TempDir() + "/vision_text_" + GetParam() + ".gguf";
  write_gguf(gguf_export(hf_checkpoint((kVisionModels / GetParam()).string())), {.mix = &find_mix("F32")}, path);
  LoadedModel model = load_vision(open_checkpoint(path), "ref", (kVisionModels / GetParam() / "mmproj.gguf").string());
  ASSERT_NE(model.vision, nullptr);
  int n_prompts = 0;
  for (const auto& golden : goldens["prompts"]) {
    if (golden["splits"].get<bool>()) continue;  // such files have no numbers of pan and scan
    RenderedChat chat{.text = golden["text"], .quoted = {}};
    model.vision->expand(chat, prepared_images(*model.vision, golden));
    EXPECT_EQ(encode_rendered(*model.tokenizer, chat), golden["tokens"].get<std::vector<int32_t>>());
    expect_logits(model, golden, 64, "ref");
    ++n_prompts;
  }
  EXPECT_EQ(n_prompts, 2);
  fs::remove(path);
}

INSTANTIATE_TEST_SUITE_P(Models, CudaVisionLogits, testing::ValuesIn(vision_names()),
                         [](const auto& i) { return i.param; });
INSTANTIATE_TEST_SUITE_P(Models, VisionLogits, testing::ValuesIn(vision_names()),
                         [](const auto& i) { return i.param; });

}  // namespace
}  // namespace ingot
