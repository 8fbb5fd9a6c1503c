// Reads model.bin, the weights of a CTranslate2 directory: a list of named variables with shapes, and other names
// (aliases) of some of them. The file is mapped; all checks are done at open. Independent of model architectures.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace ingot {

enum class Ct2Type : uint8_t { kF32, kI8, kI16, kI32, kF16, kBF16 };  // the numbers of the file

struct Ct2Variable {
  std::string name;
  Ct2Type type = Ct2Type::kF32;
  std::vector<int64_t> shape;     // empty: one number
  std::span<const uint8_t> data;  // whole, possibly unaligned
  int64_t n_elements() const;
  int64_t integer() const;  // of one number of an integer type; its only element
};

class Ct2Model {
 public:
  // Throws Error naming the file, the variable and the offset.
  static Ct2Model open(const std::string& path);
  // Parses a whole file in memory; `bytes` must outlive the result. `name` is for messages.
  static Ct2Model parse(std::span<const uint8_t> bytes, const std::string& name);

  const std::string& name() const { return name_; }  // of the file
  const std::string& spec() const { return spec_; }  // of the kind of model: "WhisperSpec"
  std::span<const Ct2Variable> variables() const { return variables_; }
  const Ct2Variable* find(std::string_view name) const;  // also by an alias

 private:
  explicit Ct2Model(std::string name) : name_(std::move(name)) {}
  void read(std::span<const uint8_t> bytes);

  std::shared_ptr<const MappedFile> mapping_;
  std::string name_, spec_;
  std::vector<Ct2Variable> variables_;
  std::map<std::string, size_t, std::less<>> index_;
};

}  // namespace ingot
