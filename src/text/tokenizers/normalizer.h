// Changes a text as a model's tokenizer wants it before it is cut: the steps of NormalizerStep in turn. Bytes that are
// not UTF-8 pass through every step as they are.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizers/tokenizer_spec.h"

namespace ingot {

class Normalizer {
 public:
  // Throws Error for an expression or a table that makes no sense.
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
