#include "engine/jump_ahead.h"

#include <algorithm>

namespace ingot {
namespace {

// The end of the output, back to the last token without text.
std::string context_of(std::span<const int32_t> output, const GrammarVocabulary& vocabulary) {
  output = output.last(std::min(output.size(), kContextTokens));
  std::string context;
  for (const int32_t token : output) {
    const std::string& bytes = vocabulary.bytes(token);
    if (bytes.empty() || bytes[0] == kControlByte)
      context.clear();
    else
      context += bytes;
  }
  return context;
}

// Keeps only the last tokens, with n_bytes in all. Returns false if no token begins at that byte.
bool keep_last_bytes(std::vector<int32_t>& tokens, size_t n_bytes, const GrammarVocabulary& vocabulary) {
  size_t n = 0;
  auto first = tokens.end();
  while (n < n_bytes && first != tokens.begin()) {
    if (*--first >= vocabulary.size()) return false;
    n += vocabulary.bytes(*first).size();
  }
  tokens.erase(tokens.begin(), first);
  return n == n_bytes;
}

}  // namespace

std::vector<int32_t> forced_tokens(AnswerConstraint& constraint, std::span<const int32_t> output,
                                   const Effort& effort) {
  const GrammarVocabulary& vocabulary = constraint.vocabulary();
  if (!vocabulary.encode()) return {};
  std::string forced = constraint.forced(effort);
  forced.resize(std::min(forced.size(), forced.find(kControlByte)));  // a control token is sampled
  if (forced.empty()) return {};
  std::vector<int32_t> tokens = vocabulary.encode()(context_of(output, vocabulary) + forced);
  if (!keep_last_bytes(tokens, forced.size(), vocabulary)) return {};
  AnswerConstraint::Place place = constraint.place();
  try {
    const auto refused = [&](int32_t token) { return !constraint.accept(token, effort); };
    tokens.erase(std::ranges::find_if(tokens, refused), tokens.end());
    if (!tokens.empty() && !constraint.is_over(effort)) tokens.pop_back();
  } catch (...) {
    constraint.go_back(std::move(place));
    throw;
  }
  constraint.go_back(std::move(place));
  return tokens;
}

}  // namespace ingot
