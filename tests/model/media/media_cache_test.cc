// MediaCache: a second turn decodes and encodes nothing, the memory is bounded, and errors name the image.
#include "model/media/media_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "model/vision/vision_goldens.h"

namespace ingot {
namespace {

std::vector<std::byte> image_test_bytes(const std::string& name) {
  const std::string text = read_file(std::string(INGOT_TEST_DATA) + "/images/" + name);
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {bytes, bytes + text.size()};
}

MediaFile image_test_file(const std::string& name, ImageSettings settings = {}) {
  return {.bytes = std::make_shared<const std::vector<std::byte>>(image_test_bytes(name)),
          .settings = settings,
          .where = name};
}

// The tiny SmolVLM, which takes the prompt "<image>" for each image.
struct ImageRig {
  explicit ImageRig(size_t max_bytes = size_t{1} << 20)
      : model(load_vision(kVisionModels / "smolvlm", "ref", false)),
        cache(model.vision.get(), nullptr, {}, max_bytes) {}

  std::vector<PromptEmbedding> encode(std::vector<MediaFile> files) {
    std::vector<PromptMedia> images = cache.prepare(std::move(files));
    RenderedChat rendered;
    for (size_t i = 0; i < images.size(); ++i) rendered.text += model.vision->placeholder();
    cache.expand(rendered, images);
    tokens = encode_rendered(*model.tokenizer, rendered);
    EXPECT_EQ(std::ranges::count(tokens, model.vision->token()), media_tokens(images));
    return cache.encode(images, tokens);
  }

  LoadedModel model;
  MediaCache cache;
  std::vector<int32_t> tokens;
};

TEST(MediaCache, ASecondTurnEncodesNothing) {
  ImageRig rig;
  const auto first = rig.encode({image_test_file("rgb.png")});
  EXPECT_EQ(rig.cache.figures().n_encoded, 1u);
  const auto both = rig.encode({image_test_file("rgb.png"), image_test_file("rgb.gif")});
  EXPECT_EQ(rig.cache.figures().n_encoded, 2u);
  EXPECT_EQ(rig.cache.figures().n_found, 1u);
  ASSERT_EQ(both.size(), 2 * first.size());
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(both[i].rows.all().data(), first[i].rows.all().data()) << "the same rows, not equal ones";
    EXPECT_EQ(both[i].digest, first[i].digest);
    EXPECT_NE(both[first.size() + i].digest, first[i].digest);
  }
}

TEST(MediaCache, SettingsAreOtherImages) {
  ImageRig rig;
  rig.encode({image_test_file("rgb.png")});
  const size_t n_whole = rig.encode({image_test_file("rgb.png", {.splits = false})}).size();
  EXPECT_EQ(n_whole, 1u);
  EXPECT_EQ(rig.cache.figures().n_encoded, 2u);
}

TEST(MediaCache, TheLongestUnusedLeavesFirst) {
  ImageRig sized;
  sized.encode({image_test_file("rgb.png")});
  const size_t one = sized.cache.figures().n_bytes;
  ImageRig rig(2 * one);
  const auto encodes = [&](const char* name) {
    const uint64_t before = rig.cache.figures().n_encoded;
    rig.encode({image_test_file(name)});
    EXPECT_LE(rig.cache.figures().n_bytes, 2 * one);
    return rig.cache.figures().n_encoded > before;
  };
  EXPECT_TRUE(encodes("rgb.png"));
  EXPECT_TRUE(encodes("rgb.gif"));
  EXPECT_FALSE(encodes("rgb.png"));
  EXPECT_TRUE(encodes("lossy.webp"));  // instead of the GIF
  EXPECT_FALSE(encodes("rgb.png"));
  EXPECT_TRUE(encodes("rgb.gif"));
}

TEST(MediaCache, WithoutMemoryEveryImageIsEncoded) {
  ImageRig rig(0);
  rig.encode({image_test_file("rgb.png")});
  rig.encode({image_test_file("rgb.png")});
  EXPECT_EQ(rig.cache.figures().n_encoded, 2u);
  EXPECT_EQ(rig.cache.figures().n_bytes, 0u);
}

TEST(MediaCache, ErrorsNameTheImage) {
  ImageRig rig;
  MediaFile cut = image_test_file("rgb.png");
  std::vector<std::byte> bytes = image_test_bytes("rgb.png");
  bytes.resize(100);
  cut.bytes = std::make_shared<const std::vector<std::byte>>(bytes);
  EXPECT_THAT(
      [&] {
        rig.cache.prepare({image_test_file("rgb.gif"), cut});
      },
      ::testing::ThrowsMessage<Error>(::testing::StartsWith("rgb.png: the image is a truncated PNG file")));
  EXPECT_THAT([&] { rig.cache.prepare({image_test_file("rgb.gif", {.max_tokens = 5})}); },
              ::testing::ThrowsMessage<Error>(::testing::StartsWith("rgb.gif: ")));
}

TEST(MediaCache, APromptNeedsAPlaceholderForEachImage) {
  ImageRig rig;
  const std::vector<PromptMedia> images = rig.cache.prepare({image_test_file("rgb.png")});
  RenderedChat none{.text = "no image", .quoted = {}};
  EXPECT_THROW(rig.cache.expand(none, images), Error);
  RenderedChat quoted{.text = "<image>", .quoted = {0}};
  EXPECT_THROW(rig.cache.expand(quoted, images), Error);
}

}  // namespace
}  // namespace ingot
