// /v1/embeddings: vectors for one or several texts or lists of token ids, as numbers or base64. Needs an embedding
// model.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "server/answers/embed_run.h"
#include "server/api/api.h"
#include "server/fields/embed_fields.h"
#include "server/fields/request_fields.h"

namespace ingot {
namespace {

constexpr size_t kMaxInputs = 2048;

// The form of the vectors.
struct Form {
  size_t n_kept = 0;  // elements kept of each vector
  bool base64 = false;
};

}  // namespace

// The model's prefix for inputs: the prompt with the given name, or the default prompt.
static std::string read_prefix(const Fields& fields, const EmbedFacts& facts) {
  if (auto prompt = facts.find_prompt(fields.string("prompt_name", 256).value_or(""))) return std::move(*prompt);
  fields.refuse("prompt_name", "must be a prompt of the model: " + facts.prompt_names());
}

size_t read_dimensions(const Fields& fields, const Embedder& embedder) {
  const auto wanted = fields.integer("dimensions", 1, 1 << 20);
  if (!wanted || *wanted == embedder.dim()) return static_cast<size_t>(embedder.dim());
  const EmbedFacts& facts = embedder.facts();
  const int n = static_cast<int>(*wanted);
  const bool known =
      facts.cut_dimensions.empty() || std::ranges::find(facts.cut_dimensions, n) != facts.cut_dimensions.end();
  if (facts.may_cut && known && n < embedder.dim()) return static_cast<size_t>(n);
  const std::string others = !facts.may_cut ? "its makers do not say that shorter vectors keep their meaning"
                             : facts.cut_dimensions.empty()
                                 ? "or fewer"
                                 : fmt::format("or {}", fmt::join(facts.cut_dimensions, ", "));
  fields.refuse("dimensions",
                fmt::format("of this model must be {}{}{}", embedder.dim(), facts.may_cut ? " " : ": ", others));
}

static Form read_form(const Fields& fields, const Embedder& embedder) {
  const std::string format = fields.string("encoding_format", 64).value_or("float");
  if (format != "float" && format != "base64") fields.refuse("encoding_format", "must be \"float\" or \"base64\"");
  return {.n_kept = read_dimensions(fields, embedder), .base64 = format == "base64"};
}

std::optional<int> read_cut(const Fields& fields, const Embedder& embedder, bool cuts_by_default) {
  const bool cuts = fields.boolean("truncate").value_or(cuts_by_default);
  const auto max_tokens = fields.integer("truncate_prompt_tokens", -1, embedder.max_tokens());
  if (!max_tokens) return cuts ? std::optional(embedder.max_tokens()) : std::nullopt;
  if (*max_tokens == 0)
    fields.refuse("truncate_prompt_tokens", "is 0: it must be at least 1, or -1 for as many tokens as fit");
  return *max_tokens > 0 ? static_cast<int>(*max_tokens) : embedder.max_tokens();
}

std::vector<EmbedText> read_texts(const Fields& fields, const Embedder& embedder, std::optional<int> max_tokens) {
  std::vector<EmbedText> texts;
  const std::string prefix = read_prefix(fields, embedder.facts());
  const int n_prompt = embedder.prompt_tokens(prefix);
  int n_before = 0;  // number of tokens of the prefix before the input
  for (Prompt& one : read_prompts(fields, "input", kMaxInputs, [&](const std::string& text) {
         n_before = n_prompt;
         return embedder.tokenizer().encode(prefix + text);
       })) {
    const size_t n_whole = one.tokens.size();
    std::vector<int32_t> text = max_tokens ? embedder.cut(std::move(one.tokens), *max_tokens) : std::move(one.tokens);
    if (text.size() < n_whole && text.size() <= static_cast<size_t>(n_before))
      refuse_value(one.path,
                   fmt::format("keeps {} tokens, but the prompt before it has {}: keep more", text.size(), n_before));
    if (text.empty()) refuse_value(one.path, "has no tokens: it needs at least one");
    for (const int32_t id : text)
      if (id >= embedder.n_vocab())
        refuse_value(one.path, fmt::format("has the token {}: ids go from 0 to {}", id, embedder.n_vocab() - 1));
    if (text.size() > static_cast<size_t>(embedder.max_tokens()))
      throw ApiError(
          400,
          fmt::format(
              "{} has {} tokens, but this model reads at most {}: shorten it, or cut its end with \"truncate\": true",
              one.path, text.size(), embedder.max_tokens()),
          one.path, "context_length_exceeded");
    texts.push_back({std::move(text), n_before});
  }
  return texts;
}

std::span<float> vector_of(EmbedAnswer& answer, size_t i, size_t n_kept) {
  const size_t dim = answer.rows.size() / answer.n_texts;
  std::span<float> vector = std::span(answer.rows).subspan(i * dim, dim);
  if (n_kept < dim) {  // and then scaled to length 1 again
    vector = vector.first(n_kept);
    double squares = 0;
    for (const float x : vector) squares += double{x} * x;
    for (float& x : vector) x = static_cast<float>(squares > 0 ? x / std::sqrt(squares) : 0);
  }
  if (std::ranges::any_of(vector, [](float x) { return !std::isfinite(x); }))
    throw ApiError(500, fmt::format("the model's vector of input[{}] has numbers that are not finite", i));
  return vector;
}

void append_numbers(std::string& out, std::span<const float> vector) {
  for (size_t k = 0; k < vector.size(); ++k)
    fmt::format_to(std::back_inserter(out), "{}{:.9g}", k > 0 ? ',' : '[', vector[k]);
  out += ']';
}

namespace {

std::string base64_of(std::span<const float> numbers) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const std::span bytes(reinterpret_cast<const unsigned char*>(numbers.data()), numbers.size_bytes());
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t n = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) group = group << 8 | (k < n ? bytes[i + k] : 0u);
    for (size_t k = 0; k < 4; ++k) out += k <= n ? kDigits[group >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

// Writes the JSON by hand, because a large answer has millions of numbers.
std::string body_of(EmbedAnswer& answer, const Form& form, const std::string& model) {
  std::string out = R"({"object":"list","data":[)";
  for (size_t i = 0; i < answer.n_texts; ++i) {
    const std::span<float> vector = vector_of(answer, i, form.n_kept);
    out += fmt::format(R"({}{{"object":"embedding","index":{},"embedding":)", i > 0 ? "," : "", i);
    if (form.base64) {
      out += '"' + base64_of(vector) + "\"}";
    } else {
      append_numbers(out, vector);
      out += '}';
    }
  }
  out += fmt::format(R"(],"model":{},"usage":{{"prompt_tokens":{},"total_tokens":{}}}}})", dump_json(model),
                     answer.n_tokens, answer.n_tokens);
  return out;
}

}  // namespace

void answer_embeddings(const ApiCall& call) {
  const Fields fields(call.body);
  const Embedder& embedder = call.model->embedder();
  ServedModel::Ticket ticket = admit(*call.model, 1);
  const Form form = read_form(fields, embedder);
  run_embeds(call, std::move(ticket), read_texts(fields, embedder, read_cut(fields, embedder)),
             [form, model = call.model->id()](EmbedAnswer answer) { return body_of(answer, form, model); });
}

}  // namespace ingot
