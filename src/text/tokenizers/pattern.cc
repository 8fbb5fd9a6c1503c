#include "text/tokenizers/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.h"
#include "text/tokenizers/text_regex.h"

namespace ingot {
namespace {

constexpr size_t kMaxExpression = 4096;
constexpr uint32_t kMatchLimit = 1'000'000, kHeapLimitKib = 16 * 1024;

}  // namespace

struct Pattern::Compiled {
  ~Compiled() {
    pcre2_match_context_free(context);
    pcre2_code_free(code);
  }
  pcre2_code* code = nullptr;
  pcre2_match_context* context = nullptr;
};

Pattern::Pattern(std::string_view expression) : expression_(expression), compiled_(std::make_unique<Compiled>()) {
  if (expression.size() > kMaxExpression)
    throw Error("expression '{}' is {} bytes long; the limit is {}", printable(expression, 64), expression.size(),
                kMaxExpression);
  int error = 0;
  PCRE2_SIZE offset = 0;
  compiled_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                                  PCRE2_UTF, &error, &offset, nullptr);
  if (compiled_->code == nullptr)
    throw Error("expression '{}': {} at {}", printable(expression), pcre2_message(error), offset);
  compiled_->context = pcre2_match_context_create(nullptr);
  pcre2_set_match_limit(compiled_->context, kMatchLimit);
  pcre2_set_heap_limit(compiled_->context, kHeapLimitKib);
}

Pattern::~Pattern() = default;

bool Pattern::matches_start(std::string_view text) const { return matches(text, PCRE2_ANCHORED); }
bool Pattern::matches_part(std::string_view text) const { return matches(text, 0); }

bool Pattern::matches(std::string_view text, unsigned options) const {
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data(pcre2_match_data_create(1, nullptr),
                                                                            pcre2_match_data_free);
  const int result = pcre2_match(compiled_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, options,
                                 data.get(), compiled_->context);
  if (result == PCRE2_ERROR_NOMATCH) return false;
  if (result < 0)
    throw Error("expression '{}' on '{}': {}", printable(expression_), printable(text, 128), pcre2_message(result));
  return true;
}

}  // namespace ingot
