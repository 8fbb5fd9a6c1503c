// /v1/embeddings: vectors of texts, from models made for that. Texts or token ids, one or several; numbers or base64.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "server/api.h"
#include "server/request_fields.h"

namespace ingot {
namespace {

constexpr size_t kMaxInputs = 2048;

struct EmbeddingsRequest {
  std::vector<EmbedText> texts;
  size_t n_texts = 0, n_tokens = 0;
  size_t n_kept = 0;  // numbers of each vector
  bool base64 = false;
};

// What the model's makers put in front of a text: of the prompt that is asked for by name, or of the one that they always want.
std::string read_prefix(const Fields& fields, const EmbedFacts& facts) {
  const auto wanted = fields.string("prompt_name", 256);
  const std::string name = wanted ? *wanted : facts.default_prompt.value_or("");
  if (name.empty()) return {};
  std::string known;
  for (const auto& [prompt, text] : facts.prompts) {
    if (prompt == name) return text;
    known += (known.empty() ? "" : ", ") + printable(prompt, 64);
  }
  fields.refuse("prompt_name", "must be one that the model has: " + (known.empty() ? "it has none" : known));
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

// input: "text", ["text", ...], [1, 2, ...] or [[1, 2], ...].
EmbeddingsRequest read_request(const Fields& fields, const Embedder& embedder) {
  EmbeddingsRequest request;
  const std::string format = fields.string("encoding_format", 64).value_or("float");
  if (format != "float" && format != "base64") fields.refuse("encoding_format", "must be \"float\" or \"base64\"");
  request.base64 = format == "base64";
  request.n_kept = read_dimensions(fields, embedder);
  fields.string("user");
  const bool cut = fields.boolean("truncate").value_or(false);
  const std::string prefix = read_prefix(fields, embedder.facts());
  for (Prompt& one : read_prompts(fields, "input", kMaxInputs, [&](const std::string& text) {
         return embedder.tokenizer().encode(prefix + text);
       })) {
    std::vector<int32_t> text = cut ? embedder.cut(std::move(one.tokens)) : std::move(one.tokens);
    if (text.empty()) refuse_value(one.path, "has no tokens: it needs at least one");
    for (const int32_t id : text)
      if (id >= embedder.n_vocab())
        refuse_value(one.path, fmt::format("has the token {}: ids go from 0 to {}", id, embedder.n_vocab() - 1));
    if (text.size() > static_cast<size_t>(embedder.max_tokens()))
      throw ApiError(400,
                     fmt::format("{} has {} tokens, and this model reads at most {}: shorten it, or let its end be cut "
                                 "with \"truncate\": true",
                                 one.path, text.size(), embedder.max_tokens()),
                     one.path, "context_length_exceeded");
    request.n_tokens += text.size();
    request.texts.push_back({std::move(text)});
  }
  request.n_texts = request.texts.size();
  return request;
}

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

// The first numbers of a vector; of length 1 again when there were more.
std::span<float> shortened(std::span<float> vector, size_t n_kept) {
  if (n_kept == vector.size()) return vector;
  double squares = 0;
  for (const float x : vector.first(n_kept)) squares += double{x} * x;
  for (float& x : vector.first(n_kept)) x = static_cast<float>(squares > 0 ? x / std::sqrt(squares) : 0);
  return vector.first(n_kept);
}

// Written by hand: a large answer has millions of numbers.
std::string body_of(const EmbeddingsRequest& request, std::vector<float>& rows, const std::string& model) {
  const size_t n_texts = request.n_texts, dim = rows.size() / n_texts;
  std::string out = R"({"object":"list","data":[)";
  for (size_t i = 0; i < n_texts; ++i) {
    const std::span<float> vector = shortened(std::span(rows).subspan(i * dim, dim), request.n_kept);
    if (std::ranges::any_of(vector, [](float x) { return !std::isfinite(x); }))
      throw ApiError(500, fmt::format("the model's vector of input[{}] has numbers that are not finite", i));
    out += fmt::format(R"({}{{"object":"embedding","index":{},"embedding":)", i > 0 ? "," : "", i);
    if (request.base64) {
      out += '"' + base64_of(vector) + "\"}";
    } else {
      for (size_t k = 0; k < vector.size(); ++k)
        fmt::format_to(std::back_inserter(out), "{}{:.9g}", k > 0 ? ',' : '[', vector[k]);
      out += "]}";
    }
  }
  out += fmt::format(R"(],"model":{},"usage":{{"prompt_tokens":{},"total_tokens":{}}}}})", dump_json(model),
                     request.n_tokens, request.n_tokens);
  return out;
}

// A request on its way, held by the queue's callback and then by a worker.
struct Run {
  std::shared_ptr<ServedModel> model;
  std::shared_ptr<Responder> responder;
  ServedModel::Ticket ticket;
  EmbeddingsRequest request;
  Clock::time_point begin = Clock::now();
  std::atomic<bool> over{false};

  Run(const ApiCall& call, ServedModel::Ticket t, EmbeddingsRequest r)
      : model(call.model), responder(call.responder), ticket(std::move(t)), request(std::move(r)) {}

  void count(RequestEnd end, const EmbedQueue::Result& result) {
    const int n = static_cast<int>(request.n_tokens);
    model->metrics.on_end(end, {.prompt_tokens = n,
                                .queue_s = result.queue_s,
                                .prefill_s = result.compute_s,
                                .e2e_s = std::chrono::duration<double>(Clock::now() - begin).count()});
  }
  void abort(uint64_t id) {
    model->embeds().cancel(id);
    if (!over.exchange(true)) count(RequestEnd::kAbort, {});
  }
  void finish(EmbedQueue::Result result) {
    if (over.exchange(true)) return;
    try {
      if (!result.failure.empty())
        throw ApiError(result.too_late ? 503 : 500, printable(result.failure), "",
                       result.too_late ? "queue_timeout" : "");
      std::string body = body_of(request, result.rows, model->id());
      responder->note("prompt_tokens", std::to_string(request.n_tokens));
      count(RequestEnd::kStop, result);
      responder->respond({.body = std::move(body)});
    } catch (const ApiError& error) {
      count(RequestEnd::kError, result);
      responder->respond(error_response(error));
    }
  }
};

}  // namespace

void answer_embeddings(const ApiCall& call) {
  const JsonValue body = parse_request_json(call.request.body);
  const Fields fields(body);
  EmbedQueue& queue = call.model->embeds();
  ServedModel::Ticket ticket = admit(*call.model, 1);
  const auto run = std::make_shared<Run>(call, std::move(ticket), read_request(fields, call.model->embedder()));
  const uint64_t id =
      queue.submit(std::move(run->request.texts), [run, &workers = call.stream_workers](EmbedQueue::Result result) {
        workers.post([run, result = std::make_shared<EmbedQueue::Result>(std::move(result))] {
          run->finish(std::move(*result));
        });
      });
  call.responder->on_gone([id, weak = std::weak_ptr<Run>(run)] {
    if (const auto gone = weak.lock()) gone->abort(id);
  });
}

}  // namespace ingot
