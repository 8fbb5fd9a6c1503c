// /v1/rerank: ranks documents by their relevance to a query, with a cross-encoder.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/json.h"
#include "server/answers/embed_run.h"
#include "server/fields/embed_fields.h"
#include "server/fields/request_fields.h"

namespace ingot {
namespace {

constexpr size_t kMaxDocuments = 2048;

// "text" or {"text": "..."}.
std::vector<std::string> read_documents(const Fields& fields) {
  const JsonValue& given = fields.at("documents");
  if (!given.is_array() || given.empty()) fields.refuse("documents", "must be an array of texts, and not empty");
  if (given.size() > kMaxDocuments)
    fields.refuse("documents", fmt::format("has {} elements: at most {}", given.size(), kMaxDocuments));
  std::vector<std::string> documents;
  for (const JsonValue& one : given) {
    const std::string path = fmt::format("documents[{}]", documents.size());
    if (!one.is_string() && !one.is_object()) refuse_value(path, "must be a string, or an object with a text");
    documents.push_back(one.is_string() ? one.get<std::string>() : string_member(one, "text", path));
  }
  return documents;
}

std::vector<EmbedText> read_pairs(const Fields& fields, const Embedder& embedder,
                                  const std::vector<std::string>& documents) {
  const auto query = fields.string("query", 16 << 20);
  if (!query) fields.refuse("query", "is missing");
  const std::optional<int> max_tokens = read_cut(fields, embedder);
  std::vector<EmbedText> pairs;
  for (const std::string& document : documents) {
    Embedder::Pair pair = embedder.pair(*query, document, max_tokens);
    const std::string path = fmt::format("documents[{}]", pairs.size());
    if (pair.tokens.empty()) refuse_value(path, "and the query have no tokens: they need at least one");
    if (pair.tokens.size() > static_cast<size_t>(embedder.max_tokens()))
      throw ApiError(400,
                     fmt::format("{} and the query have {} tokens, but this model reads at most {}: shorten them, or "
                                 "cut their ends with \"truncate\": true",
                                 path, pair.tokens.size(), embedder.max_tokens()),
                     path, "context_length_exceeded");
    if (max_tokens && pair.tokens.size() > static_cast<size_t>(*max_tokens))
      fields.refuse(
          "truncate_prompt_tokens",
          fmt::format("is {}: the query and the model's prompt alone have {} tokens", *max_tokens, pair.tokens.size()));
    pairs.push_back({std::move(pair.tokens), pair.second});
  }
  return pairs;
}

std::string body_of(const EmbedAnswer& answer, const std::vector<std::string>& documents, size_t n_results,
                    bool with_documents, const std::string& model) {
  for (size_t i = 0; i < documents.size(); ++i)
    if (!std::isfinite(answer.rows[i]))
      throw ApiError(500, fmt::format("the model's score of documents[{}] is not finite", i));
  std::vector<size_t> order(documents.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return answer.rows[a] > answer.rows[b]; });
  order.resize(std::min(order.size(), n_results));
  JsonValue results = JsonValue::array();
  for (const size_t i : order) {
    results.push_back({{"index", i}, {"relevance_score", answer.rows[i]}});
    if (with_documents) results.back()["document"] = {{"text", documents[i]}};
  }
  return dump_json({{"id", random_id("rerank-")},
                    {"object", "list"},
                    {"model", model},
                    {"results", std::move(results)},
                    {"usage", {{"prompt_tokens", answer.n_tokens}, {"total_tokens", answer.n_tokens}}}});
}

}  // namespace

void answer_rerank(const ApiCall& call) {
  const Fields fields(call.body);
  ServedModel::Ticket ticket = admit(*call.model, 1);
  const size_t n_results = static_cast<size_t>(fields.integer("top_n", 1, INT32_MAX).value_or(INT32_MAX));
  const bool with_documents = fields.boolean("return_documents").value_or(false);
  std::vector<std::string> documents = read_documents(fields);
  std::vector<EmbedText> pairs = read_pairs(fields, call.model->embedder(), documents);
  run_embeds(call, std::move(ticket), std::move(pairs),
             [documents = std::move(documents), n_results, with_documents, model = call.model->id()](
                 EmbedAnswer answer) { return body_of(answer, documents, n_results, with_documents, model); });
}

}  // namespace ingot
