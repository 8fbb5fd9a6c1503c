// Implements the C API (include/ingot/ingot.h) with the tokenizer and the engine. capi_load.cc loads models.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "capi/capi_guard.h"
#include "capi/capi_request.h"
#include "ingot/ingot.h"
#include "model/speech/speech_files.h"
#include "model/vectors/embedder.h"

namespace ingot {
namespace {

// Nothing if the options set no constraint.
std::optional<WantedGrammar> grammar_of(const ingot_request_options& o) {
  struct Row {
    GrammarKind kind;
    const char *text, *name;
  };
  std::optional<WantedGrammar> wanted;
  for (const auto& [kind, text, name] : {Row{GrammarKind::kSchema, o.json_schema, "json_schema"},
                                         {GrammarKind::kRegex, o.regex, "regex"},
                                         {GrammarKind::kGrammar, o.grammar, "grammar"}}) {
    if (text == nullptr) continue;
    if (wanted) throw Error("json_schema, regex and grammar exclude each other: set only one of them");
    wanted = WantedGrammar{{.kind = kind, .text = text}, name};
  }
  return wanted;
}

// In a chat, the constraint holds for the content of the answer: after the reasoning, in the right channel.
void constrain(Request& request, CapiModel& model, const WantedGrammar& wanted) {
  AnswerForm form;
  model.answers.begin(request.prompt, form);
  const bool is_chat = form.in_reasoning || form.closed_reasoning || model.answers.is_chat(request.prompt);
  PlacedConstraint placed = is_chat ? model.answers.constrain(form, wanted) : model.answers.constrain_text(wanted);
  request.constraint = std::move(placed.constraint);
  request.constraint_start = std::move(placed.start);
}

std::optional<BeamParams> beams_of(const ingot_request_options& o) {
  check_range("n_beams", o.n_beams, 1, kMaxBeams);
  check_range("early_stopping", o.early_stopping, INGOT_EARLY_NO, INGOT_EARLY_NEVER);
  if (o.n_beams == 1) return std::nullopt;
  if (o.logprobs != 0 && o.top_logprobs > 0)
    throw Error("a search with beams knows the log-probabilities of its text only: top_logprobs must be 0");
  return BeamParams{.n_beams = o.n_beams,
                    .length_penalty = o.length_penalty,
                    .early_stopping = static_cast<EarlyStopping>(o.early_stopping)};
}

Request request_of(CapiModel& model, std::span<const int32_t> prompt, const ingot_request_options& o) {
  Request request;
  request.prompt.assign(prompt.begin(), prompt.end());
  request.sampling = {.temperature = o.temperature,
                      .top_k = o.top_k,
                      .typical_p = o.typical_p,
                      .top_p = o.top_p,
                      .min_p = o.min_p,
                      .repetition_penalty = o.repetition_penalty,
                      .presence_penalty = o.presence_penalty,
                      .frequency_penalty = o.frequency_penalty,
                      .penalty_window = o.penalty_window,
                      .seed = o.seed,
                      .n_logprobs = o.logprobs != 0 ? o.top_logprobs : -1};
  check_range("top_logprobs", o.top_logprobs, 0, kMaxLogprobs);
  for (size_t i = 0; i < o.n_biases; ++i)
    request.sampling.logit_bias.emplace_back((&required(o.bias_tokens, "bias_tokens"))[i],
                                             (&required(o.biases, "biases"))[i]);
  request.max_tokens = o.max_tokens;
  request.stop_tokens = model.loaded.tokenizer->end_tokens();
  for (size_t i = 0; i < o.n_stop_tokens; ++i)
    request.stop_tokens.push_back((&required(o.stop_tokens, "stop_tokens"))[i]);
  request.ignore_eos = o.ignore_eos != 0;
  request.priority = o.priority;
  if (o.cache_salt != nullptr) request.cache_salt = o.cache_salt;
  request.beams = beams_of(o);
  if (!request.beams)
    request.proposer = make_proposer(model.speculate, model.engine->info().draft_head, model.draft.get());
  if (!(o.timeout_s >= 0 && o.timeout_s < 1e9)) throw Error("timeout_s is {}: it must be from 0 to 10^9", o.timeout_s);
  if (o.timeout_s > 0)
    request.deadline =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(o.timeout_s));
  if (const std::optional<WantedGrammar> wanted = grammar_of(o)) constrain(request, model, *wanted);
  std::vector<PromptMedia> media = prepare_media(model, o.images, o.n_images);
  if (!media.empty()) {
    const int n_ctx = context_limit(model.engine->info());  // checked before the tower runs
    if (static_cast<int>(request.prompt.size()) >= n_ctx)
      throw Error("the prompt has {} tokens, {} of them for {}, but the context has {}", request.prompt.size(),
                  media_tokens(media), media_count(media), n_ctx);
    request.embeddings = model.media->encode(media, request.prompt);
  }
  return request;
}

}  // namespace
}  // namespace ingot

using namespace ingot;

extern "C" {

const char* ingot_version(void) { return INGOT_VERSION; }
const char* ingot_last_error(void) { return last_error().c_str(); }

const char* ingot_status_name(ingot_status status) {
  constexpr const char* kNames[] = {"INGOT_OK",      "INGOT_INVALID", "INGOT_FULL",    "INGOT_MEMORY",
                                    "INGOT_TIMEOUT", "INGOT_END",     "INGOT_INTERNAL"};
  const auto i = static_cast<size_t>(status);
  return i < std::size(kNames) ? kNames[i] : "unknown";
}

void ingot_set_log(ingot_log_callback callback, ingot_log_level least, void* user) {
  guarded([&] {
    static_assert(static_cast<int>(LogLevel::kWarn) == INGOT_LOG_WARN && static_cast<int>(LogLevel::kDebug) == 0);
    set_log_sink({});
    set_log_level(static_cast<LogLevel>(std::clamp(static_cast<int>(least), 0, static_cast<int>(INGOT_LOG_WARN))));
    if (callback != nullptr)
      set_log_sink([=](LogLevel of, const std::string& line) {
        callback(static_cast<ingot_log_level>(of), line.c_str(), user);
      });
    return INGOT_OK;
  });
}

void ingot_request_options_init_sized(ingot_request_options* options, size_t size) {
  const SamplingParams p;
  init_options(options, size,
               {.max_tokens = -1,
                .temperature = p.temperature,
                .top_k = p.top_k,
                .top_p = p.top_p,
                .min_p = p.min_p,
                .repetition_penalty = p.repetition_penalty,
                .typical_p = p.typical_p,
                .penalty_window = p.penalty_window,
                .n_beams = 1,
                .length_penalty = BeamParams().length_penalty});
}

ingot_status ingot_free(ingot_model* model) {
  return guarded([&] {
    if (model == nullptr) return INGOT_OK;
    if (in_callback()) throw Error("a callback must not free a model: its thread would wait for itself");
    model->shared->engine->stop();
    delete model;
    return INGOT_OK;
  });
}

ingot_status ingot_kind_of(const char* path, ingot_model_kind* kind) {
  return guarded([&] {
    required(kind, "kind");
    if (is_speech_model(&required(path, "path"))) return *kind = INGOT_KIND_SPEECH, INGOT_OK;
    const std::shared_ptr<const Checkpoint> checkpoint = open_checkpoint(path);
    const std::optional<std::string> pooling = read_embed_facts(*checkpoint).pooling;
    *kind = pooling == "rank" ? INGOT_KIND_RERANKER : pooling ? INGOT_KIND_EMBEDDER : INGOT_KIND_TEXT;
    return INGOT_OK;
  });
}

int ingot_n_ctx(const ingot_model* model) {
  return model == nullptr ? 0 : context_limit(model->shared->engine->info());
}
int ingot_reads_images(const ingot_model* model) { return model != nullptr && model->shared->loaded.vision ? 1 : 0; }
int ingot_is_recording(const void* bytes, size_t n) {
  const auto* file = static_cast<const std::byte*>(bytes);
  return file != nullptr && kind_of_file({file, n}) == MediaKind::kSound ? 1 : 0;
}
int ingot_reads_recordings(const ingot_model* model) { return model != nullptr && model->shared->loaded.ears ? 1 : 0; }
int ingot_n_vocab(const ingot_model* model) { return model == nullptr ? 0 : model->shared->engine->info().n_vocab; }

ingot_status ingot_tokenize(const ingot_model* model, const char* text, size_t n_bytes, int add_special,
                            int parse_special, int32_t* tokens, size_t capacity, size_t* n) {
  return guarded([&] {
    const Tokenizer& tokenizer = *required(model, "model").shared->loaded.tokenizer;
    if (n_bytes > 0) required(text, "text");
    const EncodeOptions options = {.add_special = add_special != 0, .parse_special = parse_special != 0};
    copy_out(tokenizer.encode(std::string_view(text, n_bytes), options), tokens, capacity, n);
    return INGOT_OK;
  });
}

ingot_status ingot_detokenize(const ingot_model* model, const int32_t* tokens, size_t n, char* text, size_t capacity,
                              size_t* n_bytes) {
  return guarded([&] {
    const Tokenizer& tokenizer = *required(model, "model").shared->loaded.tokenizer;
    if (n > 0) required(tokens, "tokens");
    copy_out(tokenizer.decode({tokens, n}), text, capacity, n_bytes);
    return INGOT_OK;
  });
}

ingot_status ingot_submit(ingot_model* model, const int32_t* prompt, size_t n_prompt,
                          const ingot_request_options* given, ingot_callback callback, void* user,
                          ingot_request** request) {
  return guarded([&] {
    required(request, "request") = nullptr;
    const std::shared_ptr<CapiModel>& shared = required(model, "model").shared;
    if (n_prompt > 0) required(prompt, "prompt");
    const ingot_request_options o = options_of(given, ingot_request_options_init);
    auto result = std::make_unique<ingot_request>();
    Request asked = request_of(*shared, {prompt, n_prompt}, o);
    result->model = shared;
    result->events = std::make_shared<CapiSink>(shared->loaded.tokenizer, asked.prompt, callback, user);
    asked.sink = result->events;
    const std::optional<RequestId> id = shared->engine->try_submit(std::move(asked));
    if (!id) {
      last_error() = "the queue is full: try again later";
      return INGOT_FULL;
    }
    result->id = *id;
    *request = result.release();
    return INGOT_OK;
  });
}

ingot_status ingot_poll(ingot_request* request, int timeout_ms, ingot_event* event) {
  return guarded([&] {
    required(event, "event");
    return required(request, "request").events->poll(timeout_ms, event);
  });
}

size_t ingot_top_logprobs(const ingot_top_logprob** top) {
  if (top != nullptr) *top = last_top().data();
  return last_top().size();
}

void ingot_cancel(ingot_request* request) {
  guarded([&] {
    if (request != nullptr) request->model->engine->cancel(request->id);
    return INGOT_OK;
  });
}

void ingot_request_free(ingot_request* request) {
  ingot_cancel(request);
  guarded([&] {
    delete request;
    return INGOT_OK;
  });
}

}  // extern "C"
