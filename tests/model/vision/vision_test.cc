// Vision towers: pixels, prompts and vectors equal those of transformers, in both dialects.
#include "model/vision/vision_goldens.h"

#include <gmock/gmock.h>

#include "captured_log.h"

#include "model/hf_models.h"

namespace ingot {
namespace {

using testing::HasSubstr;

class Vision : public testing::TestWithParam<std::string> {};

// The 8-bit values behind normalised pixels, of all tiles.
std::vector<double> pixel_values(const PreparedMedia& image, const nlohmann::json& processor) {
  std::vector<double> values;
  for (const ImageTile& tile : image.tiles)
    for (size_t i = 0, n = size_t{1} * tile.width * tile.height; i < 3 * n; ++i) {
      const size_t channel = i / n;
      const float pixel = tile.values[256 * channel + tile.rgb[i % n * 3 + channel]];
      // Gemma 4's tower normalises, not the processor.
      const bool is_whole = processor["do_normalize"];
      const double std = is_whole ? processor["image_std"][channel].get<double>() : 0.5,
                   mean = is_whole ? processor["image_mean"][channel].get<double>() : 0.5;
      values.push_back((pixel * std + mean) * 255);
    }
  return values;
}

TEST_P(Vision, PixelsEqualThoseOfTheProcessor) {
  const nlohmann::json goldens = vision_golden(GetParam());
  ASSERT_GE(goldens["pixels"].size(), 5u);
  const fs::path directory = kVisionModels / GetParam();
  const auto processor =
      nlohmann::json::parse(read_file((directory / "processor_config.json").string()))["image_processor"];
  for (const bool is_gguf : {false, true}) {
    const LoadedModel model = load_vision(directory, "ref", is_gguf);
    ASSERT_NE(model.vision, nullptr);
    for (const auto& golden : goldens["pixels"]) {
      SCOPED_TRACE(golden["size"].dump() + (golden["splits"].get<bool>() ? " split" : ""));
      if (is_gguf && golden["splits"].get<bool>()) continue;  // such files have no numbers of pan and scan
      ImageSettings settings;
      if (golden["splits"].get<bool>()) settings.splits = true;
      const PreparedMedia image =
          model.vision->prepare(golden_picture(golden["size"][0], golden["size"][1], golden["seed"]), settings);
      const std::vector<double> values = pixel_values(image, processor);
      ASSERT_EQ(values.size(), golden["n"].get<size_t>());
      const size_t step = golden["step"];
      for (size_t i = 0; i < golden["values"].size(); ++i)
        ASSERT_NEAR(values[i * step], golden["values"][i].get<double>(), 0.02) << i * step;
    }
  }
}

TEST_P(Vision, PromptsAndVectorsEqualThoseOfTransformers) {
  const nlohmann::json goldens = vision_golden(GetParam());
  ASSERT_GE(goldens["prompts"].size(), 2u);
  for (const bool is_gguf : {false, true})
    for (const std::string device : {"ref", "cpu"}) {
      SCOPED_TRACE(device + (is_gguf ? " mmproj" : ""));
      const LoadedModel model = load_vision(kVisionModels / GetParam(), device, is_gguf);
      for (const auto& golden : goldens["prompts"]) {
        if (is_gguf && golden["splits"].get<bool>()) continue;
        const std::vector<PreparedMedia> images = prepared_images(*model.vision, golden);
        RenderedChat chat{.text = golden["text"], .quoted = {}};
        model.vision->expand(chat, images);
        const std::vector<int32_t> tokens = encode_rendered(*model.tokenizer, chat);
        EXPECT_EQ(tokens, golden["tokens"].get<std::vector<int32_t>>());
        std::vector<EncodedMedia> encoded;
        std::vector<std::vector<float>> rows;
        for (const PreparedMedia& image : images) {
          encoded.push_back(model.vision->encode(image));
          for (const PromptEmbedding& run : encoded.back().runs) {
            const size_t width = run.rows.size() / static_cast<size_t>(run.n_rows);
            for (int r = 0; r < run.n_rows; ++r) {
              const auto row = run.rows.part(static_cast<size_t>(r) * width, width);
              rows.emplace_back(row.begin(), row.end());
            }
          }
        }
        ASSERT_EQ(rows.size(), golden["n_vectors"].get<size_t>());
        std::vector<float> got, expected;
        for (size_t i = 0; i < golden["vector_rows"].size(); ++i) {
          const auto& row = rows[golden["vector_rows"][i]];
          got.insert(got.end(), row.begin(), row.end());
          for (const float value : golden["vectors"][i]) expected.push_back(value);
        }
        EXPECT_LT(largest_difference(got, expected), allowed_error(device) * deviation(expected));
        EXPECT_EQ(model.vision->place(tokens, encoded).size(), [&] {
          size_t n = 0;
          for (const EncodedMedia& image : encoded) n += image.runs.size();
          return n;
        }());
      }
    }
}

TEST_P(Vision, ImagesHaveDigestsOfTheirPixelsAndSettings) {
  const LoadedModel model = load_vision(kVisionModels / GetParam(), "ref", false);
  const auto digest = [&](int width, int seed, ImageSettings settings = {}) {
    return model.vision->prepare(golden_picture(width, 40, seed), settings).digest;
  };
  EXPECT_EQ(digest(40, 1), digest(40, 1));
  EXPECT_NE(digest(40, 1), digest(40, 2));
  EXPECT_NE(digest(40, 1), digest(41, 1));
  const LoadedModel other = load_vision(kVisionModels / GetParam(), "ref", true);
  EXPECT_NE(digest(40, 1), other.vision->prepare(golden_picture(40, 40, 1)).digest) << "another file with the tower";
}

TEST_P(Vision, ExpandNeedsAnImageForEachPlaceholder) {
  const LoadedModel model = load_vision(kVisionModels / GetParam(), "ref", false);
  const std::vector<PreparedMedia> one = {model.vision->prepare(golden_picture(8, 8, 0))};
  const auto error_of = [&](std::string text, std::vector<size_t> quoted = {}) -> std::string {
    RenderedChat chat{.text = std::move(text), .quoted = std::move(quoted)};
    try {
      model.vision->expand(chat, one);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const std::string mark = model.vision->placeholder();
  EXPECT_EQ(error_of("a" + mark), "");
  EXPECT_THAT(error_of("a"), HasSubstr("0 placeholders"));
  EXPECT_THAT(error_of(mark + mark), HasSubstr("more placeholders"));
  EXPECT_EQ(error_of(mark + " said " + mark, {mark.size() + 6}), "") << "the second is a user's text";
  const std::vector<int32_t> tokens = {model.vision->token()};
  EXPECT_THROW(model.vision->place(tokens, {}), Error);
  const std::vector<EncodedMedia> encoded = {model.vision->encode(one[0])};
  EXPECT_THROW(model.vision->place(std::vector<int32_t>{1, 2}, encoded), Error);
}

INSTANTIATE_TEST_SUITE_P(Models, Vision, testing::ValuesIn(vision_names()), [](const auto& i) { return i.param; });

// ---- faults of files

std::string fault_of(const fs::path& directory, const std::string& mmproj = "") {
  const auto checkpoint = hf_checkpoint(directory.string());
  try {
    open_vision(*checkpoint, checkpoint->config(), *checkpoint->tokenizer(),
                {.backend = {.device = "ref"}, .mmproj = mmproj});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(VisionFaults, OfDirectoriesAreOneLine) {
  const HfCopy copy("smolvlm", kVisionModels);
  EXPECT_EQ(fault_of(copy.path()), "");
  const auto with = [&](const std::string& file, const auto& change) {
    const std::string before = copy.read(file);
    copy.edit(file, change);
    const std::string fault = fault_of(copy.path());
    copy.write(file, before);
    EXPECT_EQ(fault.find('\n'), fault.npos) << fault;
    return fault;
  };
  const auto vision = [&](const char* key, const nlohmann::json& value) {
    return with("config.json", [&](auto& json) { json["vision_config"][key] = value; });
  };
  EXPECT_THAT(vision("hidden_size", 17), HasSubstr("2 heads do not divide its dimension 17"));
  EXPECT_THAT(vision("hidden_size", 32), HasSubstr("expected [32, 48]"));
  EXPECT_THAT(vision("patch_size", 0), HasSubstr("patch_size"));
  EXPECT_THAT(vision("patch_size", 200), HasSubstr("smaller than its patches"));
  EXPECT_THAT(vision("image_size", 1000000), HasSubstr("image_size"));
  EXPECT_THAT(vision("image_size", 20), HasSubstr("cannot be merged"));
  EXPECT_THAT(vision("image_size", 12), HasSubstr("max_image_size"));
  EXPECT_THAT(vision("hidden_act", "tanh"), HasSubstr("'tanh' is not supported"));
  EXPECT_THAT(vision("num_hidden_layers", 9), HasSubstr("is missing"));
  EXPECT_THAT(vision("num_channels", 1), HasSubstr("num_channels"));
  const auto processor = [&](const char* key, const nlohmann::json& value) {
    return with("processor_config.json", [&](auto& json) { json["image_processor"][key] = value; });
  };
  EXPECT_THAT(processor("image_std", {0.5, 0.0, 0.5}), HasSubstr("standard deviation"));
  EXPECT_THAT(processor("image_mean", {0.5}), HasSubstr("expected 3"));
  EXPECT_THAT(processor("resample", 9), HasSubstr("resample"));
  EXPECT_THAT(processor("size", {{"longest_edge", 16000}}), HasSubstr("tiles a side"));
  fs::remove(copy.path() / "processor_config.json");
  EXPECT_THAT(fault_of(copy.path()), HasSubstr("preprocessor_config.json"));
}

// Of a model that keeps the size of pictures.
TEST(VisionFaults, OfPicturesAndSettingsAreOneLine) {
  const LoadedModel qwen = load_vision(kVisionModels / "qwen3_vl", "ref", false),
                    gemma = load_vision(kVisionModels / "gemma3", "ref", false);
  const auto fault = [](const LoadedModel& model, int width, int height, ImageSettings settings = {}) -> std::string {
    try {
      model.vision->prepare(golden_picture(width, height, 0), settings);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(fault(qwen, 2, 400), "");
  EXPECT_THAT(fault(qwen, 2, 401), HasSubstr("more than 200 times"));
  EXPECT_THAT(fault(qwen, 9, 9, {.splits = true}), HasSubstr("keep their size"));
  EXPECT_THAT(fault(qwen, 9, 9, {.max_tokens = 0}), HasSubstr("have 1 to 24"));
  EXPECT_THAT(fault(qwen, 9, 9, {.min_tokens = 25}), HasSubstr("have 1 to 24"));
  EXPECT_THAT(fault(gemma, 9, 9, {.max_tokens = 9}), HasSubstr("cannot be chosen"));
  const auto n_rows = [&](ImageSettings settings) {
    return qwen.vision->prepare(golden_picture(200, 200, 0), settings).n_rows;
  };
  EXPECT_EQ(n_rows({}), 16);
  EXPECT_EQ(n_rows({.max_tokens = 9}), 9);
  EXPECT_EQ(qwen.vision->prepare(golden_picture(9, 9, 0), {.min_tokens = 16}).n_rows, 16);
  EXPECT_THROW(qwen.vision->prepare({.width = 2, .height = 2, .rgb = std::vector<uint8_t>(11)}), Error);
  EXPECT_THROW(qwen.vision->prepare({.width = 0, .height = 2, .rgb = {}}), Error);
}

TEST(VisionFaults, OfQwensDirectoriesAreOneLine) {
  const HfCopy copy("qwen3_vl", kVisionModels);
  const auto with = [&](const std::string& file, const auto& change) {
    const std::string before = copy.read(file);
    copy.edit(file, change);
    std::string fault;
    try {
      load_vision(copy.path(), "ref", false);
    } catch (const Error& error) {
      fault = error.what();
    }
    copy.write(file, before);
    return fault;
  };
  const auto vision = [&](const char* key, const nlohmann::json& value) {
    return with("config.json", [&](auto& json) { json["vision_config"][key] = value; });
  };
  EXPECT_EQ(vision("depth", 2), "");
  EXPECT_THAT(vision("num_position_embeddings", 24), HasSubstr("no square"));
  EXPECT_THAT(vision("deepstack_visual_indexes", {0, 7}), HasSubstr("list of layers has 7"));
  EXPECT_THAT(vision("deepstack_visual_indexes", {1, 0}), HasSubstr("list of layers has 0"));
  EXPECT_THAT(vision("temporal_patch_size", 1), HasSubstr("temporal_patch_size"));
  EXPECT_THAT(vision("num_heads", 8), HasSubstr("multiple of 4"));
  EXPECT_THAT(vision("out_hidden_size", 16), HasSubstr("belongs to another model"));
  EXPECT_THAT(with("processor_config.json", [](auto& json) { json["image_processor"]["patch_size"] = 14; }),
              HasSubstr("but the vision tower has 4"));
  EXPECT_THAT(with("config.json",
                   [](auto& json) {
                     json["text_config"]["rope_parameters"].erase("mrope_section");
                     json["text_config"]["rope_parameters"].erase("mrope_interleaved");
                   }),
              HasSubstr("rope has 0 sections"));
}

TEST(VisionFaults, AnMmprojOfAnotherModelIsRefused) {
  const fs::path other = kModels / "llama.gguf", smolvlm = kVisionModels / "smolvlm";
  EXPECT_THAT(fault_of(smolvlm, other.string()), HasSubstr("has no vision tower"));
  EXPECT_THAT(fault_of(kHfModels / "llama_bf16", (smolvlm / "mmproj.gguf").string()),
              HasSubstr("lacks the image token"));
  EXPECT_THAT(fault_of(kHfModels / "qwen2", (smolvlm / "mmproj.gguf").string()), HasSubstr("belongs to another model"));
}

// Text still works, with a warning.
TEST(VisionFaults, ATowerThatIsNotNeededMayFail) {
  const HfCopy copy("smolvlm", kVisionModels);
  copy.edit("config.json", [](auto& json) { json["vision_config"]["num_hidden_layers"] = 9; });
  const CapturedLog log;
  const LoadedModel model = load_model(hf_checkpoint(copy.path().string()), {.backend = {.device = "ref"}}, nullptr,
                                       VisionOptions{.backend = {.device = "ref"}, .mmproj = {}, .is_needed = false});
  EXPECT_EQ(model.vision, nullptr);
  EXPECT_NE(model.runner, nullptr);
  EXPECT_THAT(log.text(), HasSubstr("the model reads no images"));
}

TEST(VisionFaults, ModelsWithoutATowerHaveNone) {
  const auto checkpoint = hf_checkpoint((kHfModels / "llama").string());
  EXPECT_EQ(open_vision(*checkpoint, checkpoint->config(), *checkpoint->tokenizer(), {}), nullptr);
}

}  // namespace
}  // namespace ingot
