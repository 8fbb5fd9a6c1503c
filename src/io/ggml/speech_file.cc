#include "io/ggml/speech_file.h"

#include <algorithm>
#include <cstring>

#include "io/reader.h"
#include "io/sniff.h"

namespace ingot {
namespace {

constexpr std::string_view kGgmlMagic = "lmgg";
constexpr int32_t kMaxGgmlSize = 1 << 20;  // of each size in the header
constexpr int32_t kMaxGgmlDims = 4;

}  // namespace

bool GgmlSpeechFile::is_one(std::span<const uint8_t> head) { return as_text(head).starts_with(kGgmlMagic); }

GgmlSpeechFile GgmlSpeechFile::open(const std::string& path) {
  GgmlSpeechFile file(path);
  auto mapping = std::make_shared<const MappedFile>(path);
  file.read(mapping->bytes());
  file.mapping_ = std::move(mapping);
  return file;
}

GgmlSpeechFile GgmlSpeechFile::parse(std::span<const uint8_t> bytes, const std::string& name) {
  GgmlSpeechFile file(name);
  file.read(bytes);
  return file;
}

const GgmlTensor* GgmlSpeechFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

void GgmlSpeechFile::read(std::span<const uint8_t> bytes) {
  const std::string file = printable(name_);
  if (!is_one(bytes))
    throw Error("{}: not one of whisper.cpp's files: it is {}", file,
                describe_file(bytes.first(std::min<size_t>(bytes.size(), 512)), bytes.size()));
  Reader reader(bytes, file);
  reader.take(kGgmlMagic.size(), "magic");
  Sizes& s = sizes_;
  for (int32_t* size : {&s.n_vocab, &s.n_audio_ctx, &s.audio_dim, &s.n_audio_heads, &s.n_audio_layers, &s.n_text_ctx,
                        &s.text_dim, &s.n_text_heads, &s.n_text_layers, &s.n_mels, &s.file_type}) {
    *size = reader.read<int32_t>("size in the header");
    if (*size < (size == &s.file_type ? 0 : 1) || *size > kMaxGgmlSize)
      reader.fail("size in the header", "{} is out of range", *size);
  }
  const auto n_bands = reader.read<int32_t>("bands of the filters"), n_bins = reader.read<int32_t>("filters");
  if (n_bands < 0 || n_bins < 0 || n_bands > kMaxGgmlSize || n_bins > kMaxGgmlSize)
    reader.fail("filters", "{} x {} is out of range", n_bands, n_bins);
  reader.take(uint64_t{4} * static_cast<uint64_t>(n_bands) * static_cast<uint64_t>(n_bins), "filters");
  const auto n_tokens = reader.read<int32_t>("number of tokens");
  if (n_tokens < 0 || n_tokens > s.n_vocab)
    reader.fail("number of tokens", "{}: the header says {}", n_tokens, s.n_vocab);
  for (int32_t i = 0; i < n_tokens; ++i)
    tokens_.push_back(as_text(reader.take(reader.read<uint32_t>("length of a token"), "token")));
  while (reader.remaining() > 0) {
    GgmlTensor t;
    const auto n_dims = reader.read<int32_t>("number of dimensions");
    const auto name_length = reader.read<int32_t>("length of a name");
    const auto type = reader.read<int32_t>("type");
    if (n_dims < 1 || n_dims > kMaxGgmlDims) reader.fail("number of dimensions", "{} is out of range", n_dims);
    if (name_length < 1 || name_length > 512) reader.fail("length of a name", "{} is out of range", name_length);
    uint64_t n_elements = 1;
    for (int32_t d = 0; d < n_dims; ++d) {
      const auto size = reader.read<int32_t>("size of a dimension");
      if (size < 1 || n_elements * static_cast<uint64_t>(size) > uint64_t{1} << 40)
        reader.fail("size of a dimension", "{} is out of range", size);
      n_elements *= static_cast<uint64_t>(size);
      t.shape.insert(t.shape.begin(), size);
    }
    t.name = as_text(reader.take(static_cast<uint64_t>(name_length), "name"));
    const Reader::Scope scope(reader, "tensor", t.name);
    const auto format = format_from_ggml(static_cast<uint32_t>(type));
    if (!format) reader.fail("type", "{} is not supported", type);
    t.format = *format;
    const FormatInfo& info = ingot::info(t.format);
    if (t.shape.back() % info.block_size != 0)
      reader.fail("size of a dimension", "{} is not a multiple of the {} elements of a block", t.shape.back(),
                  info.block_size);
    const uint64_t n_bytes =
        n_elements / static_cast<uint64_t>(info.block_size) * static_cast<uint64_t>(info.block_bytes);
    t.data = reader.take(n_bytes, "data");
    if (!index_.emplace(t.name, tensors_.size()).second) reader.fail("name", "occurs twice");
    tensors_.push_back(std::move(t));
  }
}

}  // namespace ingot
