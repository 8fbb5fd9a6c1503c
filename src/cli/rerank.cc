// ingot rerank: documents in the order in which they answer a query, by a cross-encoder.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "model/embedder.h"

namespace ingot {
namespace {

struct RerankVerb {
  std::string model, query, file, device = "cpu", log_level = "warn";
  HubFlags hub;
  std::vector<std::string> documents;
  int n_threads = 0, n_ctx = 0, batch = 2048, top = 0;
  bool truncate = false, json = false, check_tensors = false;
};

std::unique_ptr<Embedder> open(const RerankVerb& o) {
  const auto checkpoint = open_model_file({.path = o.model, .hub = o.hub, .log_level = o.log_level});
  EmbedOptions options;
  options.backend.device = o.device, options.backend.n_threads = o.n_threads;
  options.n_ctx = o.n_ctx, options.max_batch_tokens = o.batch;
  options.pooling = "rank";
  options.check_tensors = o.check_tensors;
  ProgressBar bar("loading");
  return Embedder::open(checkpoint, options, [&](size_t done, size_t total) { bar.update(done, total); });
}

// Tabs and ends of lines would break the lines of the output.
std::string on_one_line(std::string text) {
  std::replace_if(text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r' || c == '\t'; }, ' ');
  return text;
}

void rerank(const RerankVerb& o) {
  const std::vector<std::string> documents = read_lines(o.documents, o.file, "rerank");
  const auto embedder = open(o);
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
  for (const size_t i : order) results.push_back({{"index", i}, {"relevance_score", scores.values[i]}, {"document", {{"text", documents[i]}}}});
  const nlohmann::ordered_json all = {{"model", embedder->name()},
                                      {"results", std::move(results)},
                                      {"usage", {{"prompt_tokens", scores.n_tokens}, {"total_tokens", scores.n_tokens}}}};
  fmt::print("{}\n", all.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace

void add_rerank(CLI::App& app) {
  auto o = std::make_shared<RerankVerb>();
  CLI::App* verb = app.add_subcommand("rerank", "Sort documents by how well they answer a query");
  verb->add_option("MODEL,-m,--model,--hf-repo", o->model,
                   "a cross-encoder: GGUF file, Hugging Face model directory, or ORG/REPO[:QUANT] of the Hub (also -hf)")->required();
  verb->add_option("-q,--query", o->query, "what the documents should answer")->required();
  verb->add_option("-p,--prompt,--document", o->documents, "a document (repeatable)");
  verb->add_option("-f,--file", o->file, "a document in every line of this file, after those of -p; - for standard input");
  verb->add_option("-n,--top", o->top, "only so many, the best; 0: all")->check(CLI::Range(0, 1 << 24))->capture_default_str();
  verb->add_flag("--truncate", o->truncate, "cut what is too long for the model, instead of refusing it");
  verb->add_flag("--json", o->json, "one JSON object, as /v1/rerank answers");
  verb->add_option("--device", o->device, "cpu, cuda, or ref (plain C++, slow, the oracle)")->capture_default_str();
  verb->add_option("-t,--threads", o->n_threads, "threads to compute with; 0: the cores this process may use")->check(CLI::Range(0, 1024))
      ->capture_default_str();
  verb->add_option("-c,--ctx-size", o->n_ctx, "tokens of the longest pair; 0: what the model reads, at most 8192")->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  verb->add_option("-b,--batch-size", o->batch, "most tokens of several pairs in one step")->check(CLI::Range(1, 1 << 20))->capture_default_str();
  verb->add_flag("--check-tensors", o->check_tensors, "refuse weights that are not finite (reads all of them first)");
  verb->add_option("--log-level", o->log_level, "debug, info, warn, error or off")->capture_default_str();
  add_hub_options(*verb, o->hub);
  verb->footer("Each line of the output is a score, the document's number (from 0) and the document, the best first.\nExamples:\n"
               "  ingot rerank bge-reranker.gguf -q \"what is a fox?\" -p \"an animal\" -p \"a tool\"\n"
               "  ingot rerank ORG/REPO -q \"what is a fox?\" -f documents.txt -n 5 --json");
  verb->callback([o] { rerank(*o); });
}

}  // namespace ingot
