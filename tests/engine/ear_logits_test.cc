// Prompts with recordings through the engine: the logits equal those of transformers for any chunk.
#include <gtest/gtest.h>

#include "collector.h"
#include "engine/engine.h"
#include "model/ears/ear_goldens.h"
#include "model/export/gguf_export.h"
#include "model/export/quantize.h"

namespace ingot {
namespace {

void expect_ear_logits(LoadedModel& model, const nlohmann::json& golden, int chunk, const std::string& device) {
  Request request;
  std::vector<EncodedMedia> encoded;
  for (const PreparedMedia& sound : prepared_sounds(*model.ears, golden)) encoded.push_back(model.ears->encode(sound));
  request.prompt = golden["tokens"].get<std::vector<int32_t>>();
  request.embeddings = model.ears->place(request.prompt, encoded);
  request.max_tokens = 1;
  request.prompt_logprobs = 0;
  request.wants_logits = true;
  Engine engine(*model.runner, {.chunk = chunk, .prefix_cache = false});
  const auto sink = submit(engine, std::move(request));
  run(engine);
  ASSERT_TRUE(sink->finish && sink->finish->error.empty()) << sink->finish->error;
  std::vector<float> got, expected;
  for (size_t i = 0; i < golden["logit_rows"].size(); ++i) {
    const std::vector<float>& row = sink->logits.at(golden["logit_rows"][i]);
    got.insert(got.end(), row.begin(), row.end());
    for (const float value : golden["logits"][i]) expected.push_back(value);
  }
  EXPECT_LT(largest_difference(got, expected), allowed_ear_error(device) * deviation(expected))
      << device << ", chunks of " << chunk << ": " << golden["text"];
}

void expect_ear_logits(LoadedModel& model, const std::string& device) {
  const nlohmann::json goldens = ear_golden("voxtral");
  ASSERT_GE(goldens["prompts"].size(), 2u);
  for (const auto& golden : goldens["prompts"])
    for (const int chunk : {64, 7, 1}) expect_ear_logits(model, golden, chunk, device);
}

TEST(EarLogits, EqualTransformersForAnyChunk) {
  for (const std::string device : {"ref", "cpu"}) {
    LoadedModel model = load_voxtral(device, false);
    expect_ear_logits(model, device);
  }
}

// With f32 activations, so that the bound is that of the other backends.
TEST(CudaEarLogits, EqualTransformersForAnyChunk) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU";
  LoadedModel model = load_voxtral("cuda", false);
  expect_ear_logits(model, "cuda");
}

// The text model as a GGUF file, and the ears as an mmproj file.
TEST(EarLogits, EqualTransformersFromTwoFiles) {
  const std::string path = testing::TempDir() + "/ear_text.gguf";
  write_gguf(gguf_export(hf_checkpoint((kEarModels / "voxtral").string())), {.mix = &find_mix("F32")}, path);
  LoadedModel model = load_vision(open_checkpoint(path), "ref", (kEarModels / "voxtral" / "mmproj.gguf").string());
  ASSERT_NE(model.ears, nullptr);
  expect_ear_logits(model, "ref");
  fs::remove(path);
}

}  // namespace
}  // namespace ingot
