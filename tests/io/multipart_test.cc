// Forms in multipart/form-data: those of clients, and damaged ones.
#include "io/multipart.h"

#include <gmock/gmock.h>

#include "io/refused.h"

namespace ingot {
namespace {

using testing::HasSubstr;

constexpr const char* kFormType = "multipart/form-data; boundary=b0";

std::string form_part(const std::string& head, const std::string& data) {
  return "--b0\r\nContent-Disposition: form-data; " + head + "\r\n\r\n" + data + "\r\n";
}

TEST(Multipart, FieldsAndFiles) {
  const std::string data("RIFF\0\r\n-- --b0\r\n--b", 19);
  const std::string body = form_part("name=\"model\"", "whisper-1") +
                           form_part("name=\"file\"; filename=\"a \\\"b\\\".wav\"\r\nContent-Type: audio/wav", data) +
                           form_part("name=empty", "") + "--b0--\r\n";
  const auto parts = read_form_data(kFormType, body);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0].name, "model");
  EXPECT_EQ(parts[0].data, "whisper-1");
  EXPECT_FALSE(parts[0].is_file);
  EXPECT_EQ(parts[1].name, "file");
  EXPECT_EQ(parts[1].filename, "a \"b\".wav");
  EXPECT_TRUE(parts[1].is_file);
  EXPECT_EQ(parts[1].data, data);
  EXPECT_EQ(parts[2].name, "empty");
  EXPECT_EQ(parts[2].data, "");
}

TEST(Multipart, SpellingsOfClients) {
  const std::string body =
      "a preamble\r\n--b0  \r\ncontent-type: text/plain\r\nCONTENT-DISPOSITION:form-data;name=\"x\" ; "
      "filename=\"C:\\temp\\y.wav\"\r\n\r\nz\r\n--b0--and an end";
  for (const char* type : {"multipart/form-data; boundary=\"b0\"", "Multipart/Form-Data; charset=utf-8; Boundary=b0"}) {
    const auto parts = read_form_data(type, body);
    ASSERT_EQ(parts.size(), 1u) << type;
    EXPECT_EQ(parts[0].name, "x");
    EXPECT_EQ(parts[0].filename, "C:\\temp\\y.wav");
    EXPECT_EQ(parts[0].data, "z");
  }
  EXPECT_TRUE(read_form_data(kFormType, "--b0--\r\n").empty());
}

TEST(Multipart, WrongFormsAreRefused) {
  const auto refused = [](const std::string& type, const std::string& body) {
    return refusal([&] { read_form_data(type, body); });
  };
  const std::string whole = form_part("name=\"a\"", "b") + "--b0--\r\n";
  EXPECT_THAT(refused("application/json", whole), HasSubstr("must be a form"));
  EXPECT_THAT(refused("multipart/form-data", whole), HasSubstr("names no boundary"));
  EXPECT_THAT(refused("multipart/form-data; boundary=" + std::string(71, 'b'), whole), HasSubstr("names no boundary"));
  EXPECT_THAT(refused("multipart/form-data; boundary=other", whole), HasSubstr("does not begin with its boundary"));
  EXPECT_THAT(refused(kFormType, ""), HasSubstr("does not begin with its boundary"));
  EXPECT_THAT(refused(kFormType, "--b0\r\n\r\n\r\nx\r\n--b0--"), HasSubstr("part 1 of the form has no name"));
  EXPECT_THAT(refused(kFormType, "--b0\r\n" + std::string(9000, 'h') + "\r\n\r\nx\r\n--b0--"),
              HasSubstr("no head that ends"));
  EXPECT_THAT(refused(kFormType, "--b0x\r\n\r\n\r\n--b0--"), HasSubstr("damaged after its boundary 1"));
  std::string many;
  for (size_t i = 0; i <= kMaxFormParts; ++i) many += form_part("name=a", "b");
  EXPECT_THAT(refused(kFormType, many + "--b0--"), HasSubstr("more than 128 parts"));
  for (size_t n = 0; n + 5 < whole.size(); ++n) EXPECT_THROW(read_form_data(kFormType, whole.substr(0, n)), Error) << n;
}

}  // namespace
}  // namespace ingot
