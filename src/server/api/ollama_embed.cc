// /api/embed and its older form /api/embeddings: Ollama's vectors.
#include <fmt/format.h>

#include "server/fields/embed_fields.h"
#include "server/fields/ollama_fields.h"
#include "server/fields/request_fields.h"

namespace ingot {
namespace {

// A text that is too long is cut at its end, unless `truncate` is false.
void run(const ApiCall& call, const Fields& fields, std::function<std::string(EmbedAnswer)> body) {
  ServedModel::Ticket ticket = admit(*call.model, 1);
  const Embedder& embedder = call.model->embedder();
  std::vector<EmbedText> texts = read_texts(fields, embedder, read_cut(fields, embedder, true));
  read_keep_alive(call, fields);
  run_embeds(call, std::move(ticket), std::move(texts), std::move(body));
}

}  // namespace

void answer_ollama_embed(const ApiCall& call) {
  const Fields fields(call.body);
  const size_t n_kept = read_dimensions(fields, call.model->embedder());
  const std::string name = fields.string("model", 1024).value_or(ollama_name(call.model->id()));
  run(call, fields, [n_kept, name, begin = Clock::now()](EmbedAnswer answer) {
    std::string out = fmt::format(R"({{"model":{},"embeddings":)", dump_json(name));
    for (size_t i = 0; i < answer.n_texts; ++i) {
      out += i == 0 ? '[' : ',';
      append_numbers(out, vector_of(answer, i, n_kept));
    }
    return out + fmt::format(R"(],"total_duration":{},"load_duration":0,"prompt_eval_count":{}}})",
                             std::chrono::nanoseconds(Clock::now() - begin).count(), answer.n_tokens);
  });
}

void answer_ollama_embeddings(const ApiCall& call) {
  static constexpr FieldAlias kAliases[] = {{"input", "prompt"}};
  const Fields fields(call.body, "", kAliases);
  run(call, fields, [n_kept = static_cast<size_t>(call.model->embedder().dim())](EmbedAnswer answer) {
    std::string out = R"({"embedding":)";
    append_numbers(out, vector_of(answer, 0, n_kept));
    return out + '}';
  });
}

}  // namespace ingot
