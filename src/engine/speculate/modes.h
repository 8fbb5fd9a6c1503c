// The ways to speculate, by the names that users give.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "engine/speculate/draft_model.h"
#include "engine/speculate/ngram.h"

namespace ingot {

enum class Speculate : uint8_t {
  kAuto,  // kDraft if there is a draft model, else kNgram
  kOff,
  kNgram,
  kDraft,
};

inline const std::vector<std::string> kSpeculateNames = {"auto", "off", "ngram", "draft"};  // indexed by Speculate

inline std::optional<Speculate> find_speculate(std::string_view name) {
  for (size_t i = 0; i < kSpeculateNames.size(); ++i)
    if (kSpeculateNames[i] == name) return static_cast<Speculate>(i);
  return std::nullopt;
}

// For one request; null: without drafts. A draft model (null: there is none) is needed for kDraft. prediction: tokens
// that the answer may repeat; with any, kAuto is kNgram.
inline std::shared_ptr<Proposer> make_proposer(Speculate speculate, DraftModel* draft = nullptr,
                                               std::vector<int32_t> prediction = {}) {
  if (speculate == Speculate::kOff) return nullptr;
  if (speculate == Speculate::kDraft) CHECK(draft != nullptr);
  const bool prefers_draft = speculate == Speculate::kDraft || (speculate == Speculate::kAuto && prediction.empty());
  if (draft != nullptr && prefers_draft) return draft->proposer();
  return std::make_shared<NgramProposer>(std::move(prediction));
}

}  // namespace ingot
