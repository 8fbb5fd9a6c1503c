// The ears of text models: the vectors of sounds equal those of transformers, in both dialects, and faults are one line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "captured_log.h"
#include "io/gguf/gguf.h"
#include "model/ears/ear_config.h"
#include "model/ears/ear_goldens.h"
#include "model/hf_models.h"
#include "model/media/media_cache.h"

namespace ingot {
namespace {

using ::testing::HasSubstr;

// A tokenizer that has the audio token: that of voxtral, or with the token of another family in its place.
struct EarRig {
  EarRig(const std::string& name, const std::string& device, bool is_gguf) : copy("voxtral", kEarModels) {
    const std::string token = name == "ultravox" ? "<|reserved_special_token_0|>" : name == "qwen2a" ? "<|AUDIO|>" : "";
    if (!token.empty()) {
      std::string text = copy.read("tokenizer.json");
      for (size_t at = 0; (at = text.find("\"[AUDIO]\"", at)) != text.npos;) text.replace(at, 9, '"' + token + '"');
      copy.write("tokenizer.json", text);
    }
    const auto checkpoint = hf_checkpoint(copy.path().string());
    EarOptions options{.backend = {.device = device, .n_threads = 1}};
    if (is_gguf)
      options.projector = std::make_shared<const Gguf>(Gguf::open((kEarModels / name / "mmproj.gguf").string()));
    tokenizer = checkpoint->tokenizer();
    ears = open_ears(*checkpoint, checkpoint->config(), *tokenizer, options);
  }
  const HfCopy copy;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<EarModel> ears;
};

class Ears : public testing::TestWithParam<std::string> {};

void expect_vectors(EarModel& ears, const nlohmann::json& golden, const std::string& device) {
  const PreparedMedia sound = ears.prepare(golden_recording(golden["n"], golden["seed"]), {}, golden.dump());
  ASSERT_EQ(sound.n_rows, golden["n_vectors"].get<int>());
  const EncodedMedia encoded = ears.encode(sound);
  ASSERT_EQ(encoded.runs.size(), 1u);
  const SharedFloats& rows = encoded.runs[0].rows;
  const size_t width = rows.size() / static_cast<size_t>(sound.n_rows);
  std::vector<float> got, expected;
  for (size_t i = 0; i < golden["vector_rows"].size(); ++i) {
    const auto row = rows.part(golden["vector_rows"][i].get<size_t>() * width, width);
    got.insert(got.end(), row.begin(), row.end());
    for (const float value : golden["vectors"][i]) expected.push_back(value);
  }
  EXPECT_LT(largest_difference(got, expected), allowed_ear_error(device) * deviation(expected))
      << device << ", " << golden["n"] << " samples";
}

TEST_P(Ears, VectorsEqualTransformers) {
  const nlohmann::json goldens = ear_golden(GetParam());
  ASSERT_GE(goldens["sounds"].size(), 5u);
  for (const bool is_gguf : {true, false})
    for (const std::string device : {"ref", "cpu"}) {
      if (!is_gguf && GetParam() != "voxtral") continue;
      const EarRig rig(GetParam(), device, is_gguf);
      ASSERT_NE(rig.ears, nullptr);
      for (const auto& golden : goldens["sounds"]) expect_vectors(*rig.ears, golden, device);
    }
}

class CudaEars : public Ears {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no GPU";
  }
};

TEST_P(CudaEars, VectorsEqualTransformers) {
  const EarRig rig(GetParam(), "cuda", true);
  for (const auto& golden : ear_golden(GetParam())["sounds"]) expect_vectors(*rig.ears, golden, "cuda");
}

INSTANTIATE_TEST_SUITE_P(Models, Ears, testing::Values("voxtral", "ultravox", "qwen2a"));
INSTANTIATE_TEST_SUITE_P(Models, CudaEars, testing::Values("voxtral", "ultravox", "qwen2a"));

TEST(Recordings, TokensEqualTransformers) {
  const LoadedModel model = load_voxtral("ref", false);
  for (const auto& golden : ear_golden("voxtral")["prompts"]) {
    RenderedChat chat{.text = golden["text"], .quoted = {}};
    model.ears->expand(chat, prepared_sounds(*model.ears, golden));
    EXPECT_EQ(encode_rendered(*model.tokenizer, chat), golden["tokens"].get<std::vector<int32_t>>());
  }
}

TEST(Recordings, BeginWithTheirTokenOnce) {
  const LoadedModel model = load_voxtral("ref", false);
  const std::vector<PreparedMedia> one = {model.ears->prepare(golden_recording(100, 1), {}, "a")};
  const auto expanded = [&](std::string text, std::vector<size_t> quoted = {}) {
    RenderedChat chat{.text = std::move(text), .quoted = std::move(quoted)};
    model.ears->expand(chat, one);
    return chat.text;
  };
  const std::string vectors = model.ears->prompt_text(one[0]);
  EXPECT_EQ(expanded("a[AUDIO]b"), "a[BEGIN_AUDIO]" + vectors + "b");
  EXPECT_EQ(expanded("a[BEGIN_AUDIO][AUDIO]b"), "a[BEGIN_AUDIO]" + vectors + "b");
  EXPECT_EQ(expanded("a[BEGIN_AUDIO][AUDIO]b", {1}), "a[BEGIN_AUDIO][BEGIN_AUDIO]" + vectors + "b") << "a user's text";
}

TEST(Recordings, ASecondTurnEncodesNothing) {
  const LoadedModel model = load_voxtral("ref", false);
  MediaCache cache(nullptr, model.ears.get(), {}, size_t{1} << 20);
  const auto encode = [&](std::vector<MediaFile> files) {
    std::vector<PromptMedia> media = cache.prepare(std::move(files));
    RenderedChat rendered;
    for (size_t i = 0; i < media.size(); ++i) rendered.text += "[AUDIO].";
    cache.expand(rendered, media);
    const std::vector<int32_t> tokens = encode_rendered(*model.tokenizer, rendered);
    EXPECT_EQ(std::ranges::count(tokens, model.ears->token()), media_tokens(media, MediaKind::kSound));
    return cache.encode(media, tokens);
  };
  const auto first = encode({golden_recording(100, 1)});
  const auto both = encode({golden_recording(100, 1), golden_recording(100, 2)});
  EXPECT_EQ(cache.figures().n_encoded, 2u);
  EXPECT_EQ(cache.figures().n_found, 1u);
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].digest, first[0].digest);
  EXPECT_NE(both[1].digest, first[0].digest);
  EXPECT_EQ(both[0].rows.all().data(), first[0].rows.all().data()) << "the same rows, not equal ones";
}

std::string ear_fault(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Recordings, FaultsOfFilesNameThem) {
  const LoadedModel model = load_voxtral("ref", false);
  MediaCache cache(nullptr, model.ears.get(), {.sounds = {.max_bytes = 9000, .max_seconds = 0.1}}, 0);
  const auto fault = [&](MediaFile file) { return ear_fault([&] { cache.prepare({std::move(file)}); }); };
  EXPECT_EQ(fault(golden_recording(1000, 1)), "");
  EXPECT_THAT(fault(golden_recording(0, 1)), HasSubstr("sound 1: the audio has no samples"));
  EXPECT_THAT(fault(golden_recording(1700, 1)), HasSubstr("sound 1: the audio is longer than"));
  EXPECT_THAT(fault(golden_recording(5000, 1)), HasSubstr("sound 1: the audio has 20044 bytes"));
  MediaFile image = golden_recording(10, 1);
  image.kind = MediaKind::kImage;
  EXPECT_THAT(fault(image), HasSubstr("the model has no eyes: it reads text and recordings"));
}

TEST(Recordings, FaultsOfDirectoriesAreOneLine) {
  const HfCopy copy("voxtral", kEarModels);
  const auto fault = [&](const auto& change) {
    const std::string before = copy.read("config.json");
    copy.edit("config.json", change);
    const auto checkpoint = hf_checkpoint(copy.path().string());
    const std::string text = ear_fault([&] {
      open_ears(*checkpoint, checkpoint->config(), *checkpoint->tokenizer(), {.backend = {.device = "ref"}});
    });
    copy.write("config.json", before);
    EXPECT_EQ(text.find('\n'), text.npos) << text;
    return text;
  };
  const auto audio = [&](const char* key, const nlohmann::json& value) {
    return fault([&](auto& json) { json["audio_config"][key] = value; });
  };
  EXPECT_EQ(audio("dropout", 0.5), "");
  EXPECT_THAT(audio("hidden_size", 17), HasSubstr("expected a multiple"));
  EXPECT_THAT(audio("hidden_size", 32), HasSubstr("expected [32"));
  EXPECT_THAT(audio("num_attention_heads", 3), HasSubstr("3 heads do not divide 16 dimensions"));
  EXPECT_THAT(audio("num_mel_bins", 0), HasSubstr("num_mel_bins"));
  EXPECT_THAT(audio("max_source_positions", 22), HasSubstr("no multiple of the 4 rows"));
  EXPECT_THAT(audio("max_source_positions", 1 << 30), HasSubstr("max_source_positions"));
  EXPECT_THAT(audio("num_hidden_layers", 3), HasSubstr("is missing"));
  EXPECT_THAT(audio("activation_function", "relu"), HasSubstr("'relu' is not supported"));
}

TEST(Recordings, AnMmprojOfAnotherModelIsRefused) {
  const auto open = [](const fs::path& model, const std::string& mmproj) {
    return ear_fault([&] { load_vision(hf_checkpoint(model.string()), "ref", mmproj); });
  };
  const std::string mmproj = (kEarModels / "voxtral" / "mmproj.gguf").string();
  EXPECT_THAT(open(kHfModels / "llama_bf16", mmproj), HasSubstr("lacks the audio token [AUDIO]"));
  EXPECT_THAT(open(kHfModels / "qwen2", mmproj), HasSubstr("belong to another model"));
}

// Any byte of the keys and shapes may be wrong: a fault is an Error, and no other exception.
TEST(Recordings, HostileMmprojFilesAreErrors) {
  const std::string text = read_file((kEarModels / "voxtral" / "mmproj.gguf").string());
  const size_t n_head = text.find("mm.a.mlp.2.weight");
  ASSERT_NE(n_head, text.npos);
  const auto checkpoint = hf_checkpoint((kEarModels / "voxtral").string());
  const Config config = checkpoint->config();
  const auto tokenizer = checkpoint->tokenizer();
  size_t n_opened = 0, n_refused = 0;
  for (size_t at = 0; at < n_head; ++at)
    for (const uint8_t flip : {0x01, 0x80, 0xFF}) {
      std::vector<uint8_t> bytes(text.begin(), text.end());
      bytes[at] ^= flip;
      try {
        const auto file = std::make_shared<const Gguf>(Gguf::parse(bytes, "hostile.gguf"));
        if (!gguf_has_ears(*file)) continue;
        ear_config_from_gguf(*file, config.dim);
        if (at % 8 != 0) continue;  // opening takes longer
        open_ears(*checkpoint, config, *tokenizer, {.backend = {.device = "ref"}, .projector = file});
        ++n_opened;
      } catch (const Error&) {
        ++n_refused;
      }
    }
  EXPECT_GT(n_opened, 20u);
  EXPECT_GT(n_refused, 200u);
}

TEST(Recordings, EarsThatAreNotNeededMayFail) {
  const HfCopy copy("voxtral", kEarModels);
  copy.edit("config.json", [](auto& json) { json["audio_config"]["num_hidden_layers"] = 9; });
  const CapturedLog log;
  const LoadedModel model = load_model(hf_checkpoint(copy.path().string()), {.backend = {.device = "ref"}}, nullptr,
                                       VisionOptions{.backend = {.device = "ref"}, .mmproj = {}, .is_needed = false});
  EXPECT_EQ(model.ears, nullptr);
  EXPECT_NE(model.runner, nullptr);
  EXPECT_THAT(log.text(), HasSubstr("reads no recordings"));
}

TEST(Recordings, TheContentTellsWhatAFileIs) {
  EXPECT_EQ(kind_of_file(float_wav({0.5f})), MediaKind::kSound);
  const auto kind = [](std::string_view text) {
    return kind_of_file({reinterpret_cast<const std::byte*>(text.data()), text.size()});
  };
  EXPECT_EQ(kind("\xFF\xD8\xFF\xE0...."), MediaKind::kImage);
  EXPECT_EQ(kind({"\0\0\0\x18"
                  "ftypheic....",
                  16}),
            MediaKind::kImage);
  EXPECT_EQ(kind({"\0\0\0\x18"
                  "ftypM4A ....",
                  16}),
            MediaKind::kSound);
  EXPECT_EQ(kind("OggS"), MediaKind::kSound);
  EXPECT_EQ(kind("what?"), MediaKind::kImage);
  EXPECT_EQ(kind(""), MediaKind::kImage);
}

}  // namespace
}  // namespace ingot
