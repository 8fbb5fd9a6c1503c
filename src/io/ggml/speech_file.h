// Reads whisper.cpp's files (ggml-*.bin): sizes of a speech model, filters, the bytes of its tokens, and tensors in
// ggml's types, also quantized ones. The file is mapped; all checks are done at open.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "quant/format.h"

namespace ingot {

struct GgmlTensor {
  std::string name;
  Format format = Format::F32;
  std::vector<int64_t> shape;     // outermost first
  std::span<const uint8_t> data;  // whole, possibly unaligned
};

class GgmlSpeechFile {
 public:
  // The sizes in the file's header, in its order.
  struct Sizes {
    int32_t n_vocab = 0, n_audio_ctx = 0, audio_dim = 0, n_audio_heads = 0, n_audio_layers = 0, n_text_ctx = 0,
            text_dim = 0, n_text_heads = 0, n_text_layers = 0, n_mels = 0, file_type = 0;
  };

  // Whether the file begins as these files do.
  static bool is_one(std::span<const uint8_t> head);
  // Throws Error naming the file, the tensor and the offset.
  static GgmlSpeechFile open(const std::string& path);
  // Parses a whole file in memory; `bytes` must outlive the result. `name` is for messages.
  static GgmlSpeechFile parse(std::span<const uint8_t> bytes, const std::string& name);

  const std::string& name() const { return name_; }
  const Sizes& sizes() const { return sizes_; }
  std::span<const std::string_view> tokens() const { return tokens_; }  // bytes; special tokens may be missing
  std::span<const GgmlTensor> tensors() const { return tensors_; }
  const GgmlTensor* find(std::string_view name) const;

 private:
  explicit GgmlSpeechFile(std::string name) : name_(std::move(name)) {}
  void read(std::span<const uint8_t> bytes);

  std::shared_ptr<const MappedFile> mapping_;
  std::string name_;
  Sizes sizes_;
  std::vector<std::string_view> tokens_;
  std::vector<GgmlTensor> tensors_;
  std::map<std::string, size_t, std::less<>> index_;
};

}  // namespace ingot
