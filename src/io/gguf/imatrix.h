// An importance matrix as llama.cpp's imatrix tool writes it, in the GGUF form of today or the older .dat: for each
// matrix of a model how large, on average, the squares of its inputs are. A weight's error counts that much. For
// model/quantize.
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
  // Throws Error naming the file, the entry and what is wrong with it.
  static ImportanceMatrix read(const std::string& path);

  // The weights of a tensor, by its GGUF name: as many as its rows have elements, once for each of its matrices. All
  // are above 0, an input that was never seen counting next to nothing. Empty: the file has none for it.
  std::span<const float> find(std::string_view tensor) const;

  const std::string& path() const { return path_; }
  size_t size() const { return entries_.size(); }
  uint32_t n_chunks() const { return n_chunks_; }  // of text that it was computed from; 0: the file does not say
  const std::string& dataset() const { return dataset_; }  // as the file has it: print with printable()
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
