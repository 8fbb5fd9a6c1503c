// Changes a text before it is cut, with the tokenizer's NormalizerSteps in order. Bytes that are not UTF-8 pass through
// every step unchanged.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizers/tokenizer_spec.h"

namespace ingot {

class Normalizer {
 public:
  // Throws Error for an invalid expression or table.
  explicit Normalizer(const std::vector<NormalizerStep>& steps);
  ~Normalizer();

  bool empty() const { return steps_.empty(); }
  // Throws Error when the text grows past 1 GiB.
  std::string apply(std::string_view text) const;

 private:
  struct Step;
  std::vector<std::unique_ptr<const Step>> steps_;
};

}  // namespace ingot
