// Pictures are resized as Pillow resizes them (tools/goldens/make_resample.py).
#include "model/vision/resample.h"

#include "model/vision/vision_goldens.h"

namespace ingot {
namespace {

TEST(Resample, PixelsEqualThoseOfPillow) {
  const auto goldens = nlohmann::json::parse(read_file((kData / "resample.json").string()));
  ASSERT_EQ(goldens["rows"].size(), 9u * 6u);
  for (const auto& row : goldens["rows"]) {
    SCOPED_TRACE(row["size"].dump() + " to " + row["to"].dump() + " by " + row["filter"].dump());
    const int width = row["to"][0], height = row["to"][1];
    const Picture picture = resized(golden_picture(row["size"][0], row["size"][1], row["seed"]), width, height,
                                    static_cast<Filter>(row["filter"].get<int>()));
    ASSERT_EQ(picture.rgb.size(), size_t{3} * static_cast<size_t>(width) * static_cast<size_t>(height));
    const size_t step = row["step"];
    for (size_t i = 0; i < row["values"].size(); ++i)
      EXPECT_EQ(picture.rgb[i * step], row["values"][i].get<int>()) << i * step;
  }
}

TEST(Resample, CropsAreRowsOfThePicture) {
  const Picture picture = golden_picture(9, 7, 1), part = cropped(picture, 2, 3, 5, 4);
  ASSERT_EQ(part.rgb.size(), 3u * 5u * 4u);
  for (int y = 0; y < 4; ++y)
    for (int i = 0; i < 15; ++i)
      EXPECT_EQ(part.rgb[static_cast<size_t>(15 * y + i)], picture.rgb[static_cast<size_t>(27 * (y + 3) + 6 + i)]);
}

}  // namespace
}  // namespace ingot
