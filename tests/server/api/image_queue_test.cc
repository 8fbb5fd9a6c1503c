// The queue of requests with images: when it is full, such requests get a 429, and other requests are answered.
#include <gtest/gtest.h>

#include "model/vision/vision_goldens.h"
#include "server/rig.h"

namespace ingot {
namespace {

const nlohmann::json kAskedWithImage = {
    {"messages",
     {{{"role", "user"},
       {"content",
        nlohmann::json::array({{{"type", "image_url"}, {"image_url", {{"url", "data:image/png;base64,AAAA"}}}}})}}}},
    {"max_tokens", 1}};

// A server whose model has the tower of the tiny SmolVLM.
Rig seeing_rig(int max_queue) {
  AppOptions options;
  options.media.max_queue = max_queue;
  return Rig({}, 64, options, [](ServedModelParts& parts) {
    parts.vision = load_vision(kVisionModels / "smolvlm", "ref", false).vision;
  });
}

TEST(ImageQueue, AFullQueueIsA429ForImagesOnly) {
  Rig rig = seeing_rig(0);
  const auto refused = rig.post("/v1/chat/completions", kAskedWithImage);
  ASSERT_TRUE(refused->wait());
  EXPECT_EQ(refused->status(), 429);
  EXPECT_EQ(refused->json()["error"]["code"], "image_queue_full");
  EXPECT_EQ(refused->json()["error"]["message"],
            "the server is busy with 0 requests that have images or recordings; try again soon");
  EXPECT_NE(refused->header("Retry-After"), "");
  const auto text =
      rig.post("/v1/chat/completions", {{"messages", {{{"role", "user"}, {"content", "hi"}}}}, {"max_tokens", 1}});
  ASSERT_TRUE(text->wait());
  EXPECT_EQ(text->status(), 200) << text->body();
}

TEST(ImageQueue, APlaceIsFreeAfterEachRequest) {
  Rig rig = seeing_rig(1);
  for (int n_read = 0; n_read < 20;) {
    const auto reply = rig.post("/v1/chat/completions", kAskedWithImage);
    ASSERT_TRUE(reply->wait());
    // The place is given back a moment after the answer.
    ASSERT_TRUE(reply->status() == 400 || reply->status() == 429) << reply->body();
    n_read += reply->status() == 400;
  }
}

}  // namespace
}  // namespace ingot
