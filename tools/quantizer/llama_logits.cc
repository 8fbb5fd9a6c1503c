// Writes llama.cpp's logits for some tokens: llama_logits MODEL OUT.f32 ID...
#include <cstdio>
#include <cstdlib>
#include <vector>
#include "llama.h"
int main(int argc, char** argv) {
  llama_backend_init();
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level >= GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
      },
      nullptr);
  llama_model* model = llama_model_load_from_file(argv[1], llama_model_default_params());
  if (!model) return 1;
  llama_context_params p = llama_context_default_params();
  p.n_ctx = 512;
  p.n_batch = p.n_ubatch = 512;
  p.n_threads = p.n_threads_batch = 1;
  p.type_k = p.type_v = GGML_TYPE_F32;
  p.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  llama_context* context = llama_init_from_model(model, p);
  if (!context) return 2;
  llama_batch batch = llama_batch_init(512, 0, 1);
  for (int i = 3; i < argc; ++i) {
    const int n = batch.n_tokens++;
    batch.token[n] = std::atoi(argv[i]);
    batch.pos[n] = n;
    batch.n_seq_id[n] = 1;
    batch.seq_id[n][0] = 0;
    batch.logits[n] = 1;
  }
  if (llama_decode(context, batch) != 0) return 3;
  const int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
  std::FILE* out = std::fopen(argv[2], "wb");
  std::fwrite(llama_get_logits(context), sizeof(float), static_cast<size_t>(n_vocab) * batch.n_tokens, out);
  std::fclose(out);
}
