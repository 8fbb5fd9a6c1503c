// Images against pillow, on the files of tools/image_goldens/make.py; then cut, changed and hostile ones.
#include "io/images/decode.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <fstream>

#include "io/images/decoders.h"
#include "io/refused.h"

namespace ingot {
namespace {

constexpr const char* kImageFolder = INGOT_TEST_DATA "/images/";

std::string image_bytes(const std::string& name) {
  std::ifstream file(kImageFolder + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Picture decode_text(const std::string& bytes, const ImageLimits& limits = {}) {
  return decode_image(std::as_bytes(std::span(bytes)), limits);
}

struct ImageCase {
  std::string name;
  Picture expected;
};

std::vector<ImageCase> image_cases() {
  std::ifstream list(kImageFolder + std::string("expected.txt"));
  std::ifstream pixels(kImageFolder + std::string("expected.bin"), std::ios::binary);
  std::vector<ImageCase> cases;
  for (ImageCase one; list >> one.name >> one.expected.width >> one.expected.height; cases.push_back(one)) {
    one.expected.rgb.resize(size_t(one.expected.width) * one.expected.height * 3);
    pixels.read(reinterpret_cast<char*>(one.expected.rgb.data()), std::streamsize(one.expected.rgb.size()));
  }
  return cases;
}

bool reads(const std::string& name) {
  const bool is_film = name.ends_with(".avif");  // libheif may be missing at run time, or its codec
  if (!is_film) return true;
  try {
    decode_text(image_bytes(name));
    return true;
  } catch (const Error& error) {
    return std::string_view(error.what()).find("libheif") == std::string_view::npos &&
           std::string_view(error.what()).find("this program reads") == std::string_view::npos &&
           std::string_view(error.what()).find("codec") == std::string_view::npos;
  }
}

int largest_difference(const Picture& a, const Picture& b) {
  int largest = 0;
  for (size_t i = 0; i < a.rgb.size(); ++i) largest = std::max(largest, std::abs(a.rgb[i] - b.rgb[i]));
  return largest;
}

TEST(Images, AreThoseOfPillow) {
  const std::vector<ImageCase> cases = image_cases();
  ASSERT_GT(cases.size(), 30u);
  for (const ImageCase& one : cases) {
    SCOPED_TRACE(one.name);
    if (!reads(one.name)) continue;
    const Picture picture = decode_text(image_bytes(one.name));
    EXPECT_EQ(picture.width, one.expected.width);
    EXPECT_EQ(picture.height, one.expected.height);
    ASSERT_EQ(picture.rgb.size(), one.expected.rgb.size());
    // Lossy files are decoded by another version of the library.
    const bool is_lossy = one.name.ends_with(".jpg") || one.name.ends_with(".avif") || one.name == "lossy.webp";
    EXPECT_LE(largest_difference(picture, one.expected), is_lossy ? 2 : 0);
  }
}

TEST(Images, AnotherNameChangesNothing) {
  // Nothing but the bytes is asked, so a GIF that was called .png or image/jpeg is read.
  EXPECT_EQ(decode_text(image_bytes("rgb.gif")).width, 20);
}

TEST(Images, CutFilesAreRefusedOrComplete) {
  for (const ImageCase& one : image_cases()) {
    SCOPED_TRACE(one.name);
    if (!reads(one.name)) continue;
    const std::string whole = image_bytes(one.name);
    const Picture picture = decode_text(whole);
    for (size_t n = 0; n < whole.size(); ++n) {
      try {
        EXPECT_EQ(decode_text(whole.substr(0, n)).rgb, picture.rgb) << n << " of " << whole.size() << " bytes";
        // Only the frames after the first one, and the file's end, may be missing.
        EXPECT_GT(n, one.name.starts_with("film") ? whole.size() / 3 : whole.size() * 4 / 5);
      } catch (const Error& error) {
        EXPECT_EQ(printable(error.what()), error.what());
      }
    }
  }
  EXPECT_THAT(refusal([] { decode_text(image_bytes("rgb.jpg").substr(0, 700)); }),
              testing::HasSubstr("a truncated JPEG file"));
  EXPECT_THAT(refusal([] { decode_text(image_bytes("rgb.png").substr(0, 150)); }),
              testing::HasSubstr("a truncated PNG file"));
}

TEST(Images, ChangedBytesAreRefusedOrRead) {
  for (const ImageCase& one : image_cases()) {
    SCOPED_TRACE(one.name);
    if (one.name.ends_with(".avif")) continue;  // thousands of films take long
    std::string bytes = image_bytes(one.name);
    for (char& byte : bytes) {
      const char original = byte;
      for (const int change : {0x01, 0x80, 0xFF}) {
        byte = char(original ^ change);
        try {
          const Picture picture = decode_text(bytes, {.max_pixels = 1'000'000});
          ASSERT_EQ(picture.rgb.size(), size_t(picture.width) * picture.height * 3);
        } catch (const Error& error) {
          ASSERT_EQ(printable(error.what()), error.what());
        }
      }
      byte = original;
    }
  }
}

TEST(Images, LimitsAreCheckedBeforeMemoryIsTaken) {
  std::string png = image_bytes("rgb.png");
  EXPECT_EQ(refusal([&] { decode_text(png, {.max_bytes = 100}); }),
            fmt::format("the image has {} bytes; the limit is 100: send a smaller one", png.size()));
  EXPECT_EQ(refusal([&] { decode_text(png, {.max_pixels = 259}); }),
            "the image has 20 x 13 pixels; the limit is 259 pixels: send a smaller one");
  EXPECT_EQ(refusal([&] { decode_text(png, {.max_memory = 1000}); }),
            "the image has 20 x 13 pixels and needs 1560 bytes to decode; the limit is 1000: send a smaller one");
  // A GIF of some bytes that claims 65,535 x 65,535 pixels.
  std::string gif = image_bytes("rgb.gif");
  gif.replace(6, 4, "\xFF\xFF\xFF\xFF");
  EXPECT_EQ(refusal([&] { decode_text(gif); }),
            "the image has 65535 x 65535 pixels; the limit is 50000000 pixels: send a smaller one");
  // 100 megapixels of JPEG: the size is in the header of the frame.
  std::string jpeg = image_bytes("rgb.jpg");
  const size_t frame = jpeg.find("\xFF\xC0");
  jpeg.replace(frame + 5, 4, "\x27\x10\x27\x10");
  EXPECT_THAT(refusal([&] { decode_text(jpeg); }), testing::HasSubstr("10000 x 10000 pixels; the limit is"));
}

TEST(Images, ScansWithoutEndAreRefused) {
  const std::string file = image_bytes("progressive.jpg");
  const size_t last = file.rfind("\xFF\xDA");
  std::string bomb = file.substr(0, last);
  for (int i = 0; i < 1000; ++i) bomb += file.substr(last, file.size() - 2 - last);
  bomb += "\xFF\xD9";
  EXPECT_EQ(refusal([&] { decode_text(bomb); }), "the image is a damaged JPEG file: more than 500 scans");
}

TEST(Images, OtherFilesAreNamed) {
  const auto refused = [](const std::string& bytes) { return refusal([&] { decode_text(bytes); }); };
  EXPECT_EQ(refused(""), "the image is empty: it has no bytes");
  EXPECT_EQ(refused(std::string("II*\0", 4) + std::string(100, 'x')),
            "the image is a TIFF file; this program reads " + image_formats());
  EXPECT_EQ(refused("<svg xmlns='http://www.w3.org/2000/svg'></svg>"),
            "the image is a SVG file; this program reads " + image_formats());
  EXPECT_EQ(refused("%PDF-1.7"), "the image is a PDF file; this program reads " + image_formats());
  EXPECT_THAT(refused("<!DOCTYPE html><html></html>"), testing::HasSubstr("a web page"));
  EXPECT_THAT(refused(std::string(300, '\x07')), testing::HasSubstr("this program reads JPEG, PNG, WebP"));
}

TEST(Exif, OrientationIsReadInBothByteOrders) {
  const auto block = [](bool is_big, uint8_t value, uint16_t n_entries = 1) {
    const auto u16 = [&](uint16_t v) {
      return is_big ? std::vector<uint8_t>{uint8_t(v >> 8), uint8_t(v)}
                    : std::vector<uint8_t>{uint8_t(v), uint8_t(v >> 8)};
    };
    std::vector<uint8_t> out = {uint8_t(is_big ? 'M' : 'I'), uint8_t(is_big ? 'M' : 'I')};
    const auto add = [&](std::initializer_list<uint16_t> values) {
      for (const uint16_t v : values)
        for (const uint8_t byte : u16(v)) out.push_back(byte);
    };
    add({42});
    is_big ? add({0, 8}) : add({8, 0});
    add({n_entries, 0x0112, 3});
    is_big ? add({0, 1, value, 0}) : add({1, 0, value, 0});
    return out;
  };
  for (const bool is_big : {false, true}) {
    EXPECT_EQ(exif_orientation(block(is_big, 6)), 6);
    EXPECT_EQ(exif_orientation(block(is_big, 9)), 1) << "no such orientation";
    std::vector<uint8_t> cut = block(is_big, 6, 65535);
    EXPECT_EQ(exif_orientation(cut), 6);
    for (size_t n = 0; n < 18; ++n) EXPECT_EQ(exif_orientation(std::span(cut).first(n)), 1) << n;
  }
}

}  // namespace
}  // namespace ingot
