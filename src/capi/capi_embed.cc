// The embedding functions of the C API, implemented with Embedder.
#include <vector>

#include "base/threads.h"
#include "capi/capi_guard.h"
#include "model/vectors/embedder.h"

struct ingot_embedder {
  std::unique_ptr<ingot::Embedder> embedder;
};

namespace ingot {
namespace {

// The prompt to put before each text.
std::string prompt_of(const Embedder& embedder, const char* name) {
  if (name == nullptr) return embedder.facts().find_prompt("").value_or("");
  if (auto prompt = embedder.facts().find_prompt(name)) return *std::move(prompt);
  throw Error("the model has no prompt '{}'; it has {}", printable(name, 64), embedder.facts().prompt_names());
}

std::vector<std::string> strings_of(const char* const* texts, const size_t* n_bytes, size_t n) {
  required(texts, "texts");
  std::vector<std::string> strings;
  for (size_t i = 0; i < n; ++i) {
    const char* text = &required(texts[i], "a text");
    strings.push_back(n_bytes != nullptr ? std::string(text, n_bytes[i]) : text);
  }
  return strings;
}

}  // namespace
}  // namespace ingot

using namespace ingot;

extern "C" {

void ingot_embedder_options_init_sized(ingot_embedder_options* options, size_t size) {
  init_options(options, size, {.max_batch_tokens = 2048, .normalize = 1});
}

ingot_status ingot_embedder_load(const char* path, const ingot_embedder_options* given, ingot_embedder** embedder) {
  return guarded([&] {
    required(embedder, "embedder") = nullptr;
    const ingot_embedder_options o = options_of(given, ingot_embedder_options_init);
    const std::string name = &required(path, "path");
    check_range("n_threads", o.n_threads, 0, kMaxThreads);
    check_range("n_ctx", o.n_ctx, 0, 1 << 24);
    check_range("max_batch_tokens", o.max_batch_tokens, 1, 1 << 20);
    EmbedOptions options{
        .backend = {.device = o.device != nullptr ? o.device : "cpu", .n_threads = o.n_threads, .small_weights = true},
        .n_ctx = o.n_ctx,
        .max_batch_tokens = o.max_batch_tokens,
        .normalize = o.normalize != 0};
    if (o.pooling != nullptr) options.pooling = o.pooling;
    if (options.pooling == "none")
      throw Error(
          "pooling is 'none', which makes a vector for each token, but the C API returns one for a text: use cls, mean "
          "or last");
    auto result = std::make_unique<ingot_embedder>();
    result->embedder = Embedder::open(open_checkpoint(name), options, nullptr);
    if (result->embedder->pooling() == "none")
      throw Error("the model makes a vector for each token: choose cls, mean or last for pooling");
    *embedder = result.release();
    return INGOT_OK;
  });
}

void ingot_embedder_free(ingot_embedder* embedder) {
  guarded([&] {
    delete embedder;
    return INGOT_OK;
  });
}

int ingot_embedder_dim(const ingot_embedder* embedder) { return embedder == nullptr ? 0 : embedder->embedder->dim(); }

void ingot_embed_options_init_sized(ingot_embed_options* options, size_t size) { init_options(options, size, {}); }

ingot_status ingot_embed_with(ingot_embedder* embedder, const char* const* texts, const size_t* n_bytes, size_t n_texts,
                              const ingot_embed_options* given, float* vectors, size_t capacity) {
  return guarded([&] {
    Embedder& e = *required(embedder, "embedder").embedder;
    const ingot_embed_options o = options_of(given, ingot_embed_options_init);
    if (n_texts == 0) return INGOT_OK;
    required(vectors, "vectors");
    const auto dim = static_cast<size_t>(e.dim());
    if (capacity / dim < n_texts)
      throw Error("{} texts need {} numbers each, but there is room for only {} in all", n_texts, dim, capacity);
    const std::string prompt = prompt_of(e, o.prompt_name);
    std::vector<std::vector<int32_t>> tokens;
    for (const std::string& text : strings_of(texts, n_bytes, n_texts)) {
      tokens.push_back(e.tokenizer().encode(prompt + text));
      if (o.truncate != 0) tokens.back() = e.cut(std::move(tokens.back()));
    }
    std::ranges::copy(e.embed(tokens, std::vector<int>(n_texts, e.prompt_tokens(prompt))), vectors);
    return INGOT_OK;
  });
}

ingot_status ingot_embed(ingot_embedder* embedder, const char* const* texts, const size_t* n_bytes, size_t n_texts,
                         int truncate, float* vectors, size_t capacity) {
  const ingot_embed_options options = {.struct_size = sizeof(options), .truncate = truncate};
  return ingot_embed_with(embedder, texts, n_bytes, n_texts, &options, vectors, capacity);
}

ingot_status ingot_rerank(ingot_embedder* embedder, const char* query, const char* const* documents,
                          const size_t* n_bytes, size_t n_documents, int truncate, float* scores) {
  return guarded([&] {
    Embedder& e = *required(embedder, "embedder").embedder;
    const std::string asked = &required(query, "query");
    if (n_documents == 0) return INGOT_OK;
    required(scores, "scores");
    const std::vector<std::string> all = strings_of(documents, n_bytes, n_documents);
    std::ranges::copy(e.score(asked, all, truncate != 0).values, scores);
    return INGOT_OK;
  });
}

}  // extern "C"
