// An importance matrix of llama.cpp's imatrix tool, as a GGUF file or in the older .dat format. The file has the mean
// square of each input of each matrix, which weights the squared errors in quantization. For model/quantize.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

class ImportanceMatrix {
 public:
  // Throws Error naming the file, the entry and the fault.
  static ImportanceMatrix read(const std::string& path);

  // The importances for a tensor, by its GGUF name: one for each element of a row, for each matrix in the tensor. All
  // are above 0; an input that was always 0 has a very small importance. Empty if the file lacks the tensor.
  std::span<const float> find(std::string_view tensor) const;

  const std::string& path() const { return path_; }
  size_t size() const { return entries_.size(); }
  uint32_t n_chunks() const { return n_chunks_; }  // chunks of text that the matrix was computed from; 0: not stated
  const std::string& dataset() const { return dataset_; }  // untrusted: print with printable()
  std::vector<std::string> names() const;

 private:
  void read_gguf();
  void read_legacy(std::span<const uint8_t> bytes);
  void add(const std::string& name, std::vector<float> means);

  std::string path_, dataset_;
  std::map<std::string, std::vector<float>, std::less<>> entries_;
  uint32_t n_chunks_ = 0;
};

}  // namespace ingot
