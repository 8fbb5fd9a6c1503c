// The ways to speculate, by the names that users give.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/speculate/ngram.h"

namespace ingot {

enum class Speculate : uint8_t {
  kAuto,  // the best that the model allows: today kNgram
  kOff,
  kNgram,
};

inline const std::vector<std::string> kSpeculateNames = {"auto", "off", "ngram"};  // indexed by Speculate

inline std::optional<Speculate> find_speculate(std::string_view name) {
  for (size_t i = 0; i < kSpeculateNames.size(); ++i)
    if (kSpeculateNames[i] == name) return static_cast<Speculate>(i);
  return std::nullopt;
}

// For one request; null: without drafts. prediction: tokens that the answer may repeat.
inline std::shared_ptr<Proposer> make_proposer(Speculate speculate, std::vector<int32_t> prediction = {}) {
  if (speculate == Speculate::kOff) return nullptr;
  return std::make_shared<NgramProposer>(std::move(prediction));
}

}  // namespace ingot
