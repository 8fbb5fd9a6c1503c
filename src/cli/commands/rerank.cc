// ingot rerank: sorts documents by how well they answer a query, with a cross-encoder.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/json.h"
#include "cli/options/commands.h"
#include "cli/options/embedder.h"
#include "cli/options/options.h"
#include "model/vectors/embedder.h"

namespace ingot {
namespace {

struct RerankVerb : EmbedderFlags {
  std::string query, file;
  std::vector<std::string> documents;
  int top = 0;
  bool json = false;
};

// Replaces tabs and line ends, which are separators in the output.
std::string on_one_line(std::string text) {
  std::replace_if(text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r' || c == '\t'; }, ' ');
  return text;
}

void rerank(const RerankVerb& o) {
  const std::vector<std::string> documents = read_lines(o.documents, o.file, "rerank");
  EmbedOptions options;
  options.pooling = "rank";
  const auto embedder = open_embedder(o, options);
  const Embedder::Scores scores = embedder->score(o.query, documents, o.truncate);
  std::vector<size_t> order(documents.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores.values[a] > scores.values[b]; });
  if (o.top > 0) order.resize(std::min(order.size(), static_cast<size_t>(o.top)));
  if (!o.json) {
    for (const size_t i : order) fmt::print("{:.6f}\t{}\t{}\n", scores.values[i], i, on_one_line(documents[i]));
    return;
  }
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  for (const size_t i : order)
    results.push_back({{"index", i}, {"relevance_score", scores.values[i]}, {"document", {{"text", documents[i]}}}});
  const nlohmann::ordered_json all = {
      {"model", embedder->name()},
      {"results", std::move(results)},
      {"usage", {{"prompt_tokens", scores.n_tokens}, {"total_tokens", scores.n_tokens}}}};
  fmt::print("{}\n", all.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace

void add_rerank(CLI::App& app) {
  auto o = std::make_shared<RerankVerb>();
  CLI::App* command = app.add_subcommand("rerank", "Sort documents by how well they answer a query");
  command->add_option("-q,--query", o->query, "query that the documents should answer")->required();
  command->add_option("-p,--prompt,--document", o->documents, "document to score (repeatable)");
  command->add_option("-f,--file", o->file,
                      "file with a document in each line, added after those of -p; - for standard input");
  command->add_option("-n,--top", o->top, "number of best documents to print; 0: all")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  command->add_flag("--json", o->json, "print one JSON object, as /v1/rerank returns it");
  add_embedder_flags(*command, *o, "cross-encoder", "pair");
  command->footer(
      "Each output line has a score, the document's number (from 0) and the document, the best first.\n"
      "Examples:\n"
      "  ingot rerank bge-reranker.gguf -q \"what is a fox?\" -p \"an animal\" -p \"a tool\"\n"
      "  ingot rerank ORG/REPO -q \"what is a fox?\" -f documents.txt -n 5 --json");
  command->callback([o] { rerank(*o); });
}

}  // namespace ingot
