// The speculation modes and their names in user options.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "engine/speculate/draft_model.h"
#include "engine/speculate/ngram.h"
#include "model/program/runner.h"

namespace ingot {

enum class Speculate : uint8_t {
  kAuto,  // kDraft if there is a draft model, else a draft head if the model has one, else kNgram
  kOff,
  kNgram,
  kDraft,
  kMtp,     // a draft head that is part of the model
  kEagle3,  // a draft head from a separate snapshot
};

inline const std::vector<std::string> kSpeculateNames = {"auto",  "off", "ngram",
                                                         "draft", "mtp", "eagle3"};  // indexed by Speculate

inline std::optional<Speculate> find_speculate(std::string_view name) {
  for (size_t i = 0; i < kSpeculateNames.size(); ++i)
    if (kSpeculateNames[i] == name) return static_cast<Speculate>(i);
  return std::nullopt;
}

// Whether a model with this head and this draft model (null: none) supports the mode.
inline bool can_speculate(Speculate speculate, DraftHeadKind head, const DraftModel* draft) {
  if (speculate == Speculate::kDraft) return draft != nullptr;
  if (speculate == Speculate::kMtp) return head == DraftHeadKind::kMtp;
  return speculate != Speculate::kEagle3 || head == DraftHeadKind::kEagle3;
}

// For one request. Returns null for no drafts. prediction: tokens that the answer may repeat. If not empty, kAuto means
// kNgram.
inline std::shared_ptr<Proposer> make_proposer(Speculate speculate, DraftHeadKind head, DraftModel* draft = nullptr,
                                               std::vector<int32_t> prediction = {}) {
  CHECK(can_speculate(speculate, head, draft));
  if (speculate == Speculate::kOff) return nullptr;
  if (speculate == Speculate::kNgram || (speculate == Speculate::kAuto && !prediction.empty()))
    return std::make_shared<NgramProposer>(std::move(prediction));
  if (draft != nullptr && (speculate == Speculate::kAuto || speculate == Speculate::kDraft)) return draft->proposer();
  if (head != DraftHeadKind::kNone) return std::make_shared<DraftHeadProposer>();
  return std::make_shared<NgramProposer>();
}

}  // namespace ingot
