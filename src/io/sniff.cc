#include "io/sniff.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/ascii.h"
#include "base/error.h"
#include "io/reader.h"

namespace ingot {
namespace {

using namespace std::string_view_literals;

struct Kind {
  std::string_view start;
  const char* what;
  const char* advice;
};

constexpr const char* kConvert = "convert it to GGUF again with a current converter";
constexpr const char* kWebPage = "download the model file itself (on Hugging Face, the 'resolve' link, not 'blob')";

constexpr Kind kKinds[] = {
    {"GGUF"sv, "a GGUF file", "give it a name that ends in .gguf"},
    {"FUGG"sv, "a GGUF file with its bytes swapped (big-endian)", "convert it to little-endian"},
    {"version https://git-lfs"sv, "a Git LFS pointer", "fetch the real file with 'git lfs pull'"},
    {"<!doctype"sv, "a web page (HTML)", kWebPage},
    {"<html"sv, "a web page (HTML)", kWebPage},
    {"<?xml"sv, "an XML text", kWebPage},
    {"PK\3\4"sv, "a zip archive (a PyTorch checkpoint?)", "convert it to GGUF"},
    {"\x80\2"sv, "a Python pickle (an old PyTorch checkpoint?)", "convert it to GGUF"},
    {"\x1f\x8b"sv, "a gzip archive", "unpack it first"},
    {"7z\xbc\xaf"sv, "a 7-zip archive", "unpack it first"},
    {"(\xb5/\xfd"sv, "a zstd archive", "unpack it first"},
    {"\3757zXZ"sv, "an xz archive", "unpack it first"},
    {"lmgg"sv, "a model in the old GGML format", kConvert},
    {"GGML"sv, "a model in the old GGML format", kConvert},
    {"fmgg"sv, "a model in the old GGMF format", kConvert},
    {"GGMF"sv, "a model in the old GGMF format", kConvert},
    {"tjgg"sv, "a model in the old GGJT format", kConvert},
    {"GGJT"sv, "a model in the old GGJT format", kConvert},
    {"algg"sv, "a LoRA adapter in the old GGLA format", kConvert},
    {"\x93NUMPY"sv, "a NumPy array", "give a model file"},
    {"\x89HDF"sv, "an HDF5 file", "convert it to GGUF"},
    {"\177ELF"sv, "a program (ELF)", "give a model file"},
    {"{"sv, "a JSON text", "give the model file next to it, or its directory"},
    {"Entry not found"sv, "the text of a failed download", "download it again"},
    {"Repository not found"sv, "the text of a failed download", "download it again"},
    {"Invalid credentials"sv, "the text of a failed download", "download it again, with an access token"},
    {"Access to model"sv, "the text of a refused download",
     "ask for access on the model's page, then download it again"},
    {"\0\0\0\0\0\0\0\0"sv, "zeros at its start (a download that was cut off?)", "download it again"},
};

// Case-sensitive, except for HTML, whose patterns are in lower case.
bool starts_with(std::string_view text, const Kind& kind) {
  if (text.size() < kind.start.size()) return false;
  text = text.substr(0, kind.start.size());
  if (kind.start[0] != '<') return text == kind.start;
  return std::equal(text.begin(), text.end(), kind.start.begin(), [](char a, char b) { return lower(a) == b; });
}

// Eight bytes of header length, then the header as JSON.
bool is_safetensors(std::span<const uint8_t> head, uint64_t n_bytes) {
  if (head.size() < 9 || head[8] != '{') return false;
  uint64_t n_header = 0;
  std::memcpy(&n_header, head.data(), sizeof n_header);
  return n_header <= n_bytes - 8;
}

}  // namespace

std::string describe_file(std::span<const uint8_t> head, uint64_t n_bytes) {
  if (n_bytes == 0) return "an empty file: download it again";
  const std::string_view text = as_text(head);
  if (is_safetensors(head, n_bytes)) return fmt::format("a safetensors file of {} bytes: give its directory", n_bytes);
  for (const Kind& kind : kKinds)
    if (starts_with(text, kind)) return fmt::format("{}, {} bytes: {}", kind.what, n_bytes, kind.advice);
  return fmt::format("an unknown kind of file, {} bytes that start with \"{}\"", n_bytes, printable(text.substr(0, 8)));
}

}  // namespace ingot
