// The C API's embeddings, over Embedder.
#include <vector>

#include "base/threads.h"
#include "capi/capi_guard.h"
#include "model/embedder.h"

struct ingot_embedder {
  std::unique_ptr<ingot::Embedder> embedder;
};

using namespace ingot;

extern "C" {

void ingot_embedder_options_init(ingot_embedder_options* options) {
  if (options != nullptr) *options = {.struct_size = sizeof(*options), .max_batch_tokens = 2048, .normalize = 1};
}

ingot_status ingot_embedder_load(const char* path, const ingot_embedder_options* given, ingot_embedder** embedder) {
  return guarded([&] {
    required(embedder, "embedder") = nullptr;
    const ingot_embedder_options o = options_of(given, ingot_embedder_options_init);
    const std::string name = &required(path, "path");
    check_range("n_threads", o.n_threads, 0, kMaxThreads);
    check_range("n_ctx", o.n_ctx, 0, 1 << 24);
    check_range("max_batch_tokens", o.max_batch_tokens, 1, 1 << 20);
    EmbedOptions options{.backend = {.device = o.device != nullptr ? o.device : "cpu", .n_threads = o.n_threads},
                         .n_ctx = o.n_ctx,
                         .max_batch_tokens = o.max_batch_tokens,
                         .normalize = o.normalize != 0};
    if (o.pooling != nullptr) options.pooling = o.pooling;
    if (options.pooling == "none")
      throw Error("pooling is 'none', and a vector for each token has no place here: use cls, mean or last");
    auto result = std::make_unique<ingot_embedder>();
    result->embedder = Embedder::open(open_checkpoint(name), options, nullptr);
    if (result->embedder->pooling() == "none")
      throw Error("the model has a vector for each token: choose cls, mean or last for pooling");
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

ingot_status ingot_embed(ingot_embedder* embedder, const char* const* texts, const size_t* n_bytes, size_t n_texts,
                         int truncate, float* vectors, size_t capacity) {
  return guarded([&] {
    Embedder& e = *required(embedder, "embedder").embedder;
    if (n_texts == 0) return INGOT_OK;
    required(texts, "texts");
    required(vectors, "vectors");
    const auto dim = static_cast<size_t>(e.dim());
    if (capacity / dim < n_texts)
      throw Error("{} texts need {} numbers each, and there is room for {} in all", n_texts, dim, capacity);
    std::vector<std::vector<int32_t>> tokens;
    const std::string prompt = e.facts().find_prompt("").value_or("");
    for (size_t i = 0; i < n_texts; ++i) {
      const char* text = &required(texts[i], "a text");
      tokens.push_back(e.tokenizer().encode(prompt + (n_bytes != nullptr ? std::string(text, n_bytes[i]) : text)));
      if (truncate != 0) tokens.back() = e.cut(std::move(tokens.back()));
    }
    std::ranges::copy(e.embed(tokens, std::vector<int>(n_texts, e.prompt_tokens(prompt))), vectors);
    return INGOT_OK;
  });
}

}  // extern "C"
