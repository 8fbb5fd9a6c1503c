#include "model/loader.h"

#include <chrono>

#include "base/error.h"
#include "base/log.h"
#include "io/gguf/gguf.h"
#include "io/gguf/projector.h"
#include "model/ears/ear_config.h"
#include "model/files/load_quantizer.h"
#include "model/vectors/embedder.h"
#include "text/jinja/template.h"

namespace ingot {
namespace {

std::string token_text(const Tokenizer& tokenizer, std::optional<int32_t> id) {
  return id ? std::string(tokenizer.token_text(*id)) : std::string();
}

void check_vocabulary(const Checkpoint& checkpoint, const Tokenizer& tokenizer, const Config& config) {
  if (tokenizer.n_vocab() > config.n_vocab)
    throw Error("{}: the tokenizer has {} tokens, but the embedding has only {} rows", printable(checkpoint.path()),
                tokenizer.n_vocab(), config.n_vocab);
}

void load_eyes(LoadedModel& model, Config& config, const VisionOptions& options) {
  try {
    model.vision = open_vision(*model.checkpoint, config, *model.tokenizer, options);
    Config adapted = config;  // a tower that does not fit must change nothing
    if (model.vision) model.vision->adapt(adapted);
    config = std::move(adapted);
  } catch (const Error& error) {
    if (options.is_needed) throw;
    model.vision = nullptr;
    log_warn("the model reads no images, because its vision tower cannot be loaded: {}", error.what());
  }
}

void load_ears(LoadedModel& model, const Config& config, const VisionOptions& options) {
  const EarOptions ears{
      .backend = options.backend, .projector = options.projector, .check_tensors = options.check_tensors};
  try {
    model.ears = open_ears(*model.checkpoint, config, *model.tokenizer, ears);
  } catch (const Error& error) {
    // A file that also has eyes may have ears of a kind that is not known yet.
    if (options.is_needed && !model.vision) throw;
    log_warn("the model reads no recordings, because its ears cannot be loaded: {}", error.what());
  }
}

// Before the text model, whose program depends on the vision tower.
void load_towers(LoadedModel& model, Config& config, VisionOptions options) {
  try {
    if (!options.projector && !options.mmproj.empty())
      options.projector = std::make_shared<const Gguf>(Gguf::open(options.mmproj));
  } catch (const Error& error) {
    if (options.is_needed) throw;
    log_warn("the model reads text only, because its mmproj file cannot be read: {}", error.what());
    return;
  }
  if (!options.projector || gguf_has_eyes(*options.projector) || !gguf_has_ears(*options.projector))
    load_eyes(model, config, options);
  load_ears(model, config, options);
}

}  // namespace

// Names of templates that files have, or checkpoint.cc, in place of templates. This is what GGUF files of RWKV name.
constexpr const char* kRwkvWorldTemplate =
    "{% for m in messages %}{{ m['role'] | capitalize }}: {{ m['content'] | trim }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}";

// What mistral-common writes (instruct tokenizer v7), for checkpoints that have its tokenizer but no template: Voxtral.
constexpr const char* kMistralTemplate = R"({{- bos_token }}
{%- set last = namespace(user=-1) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set last.user = loop.index0 %}{% endif %}{% endfor %}
{%- for m in messages %}
{%- if m.role == 'system' %}{{- '[SYSTEM_PROMPT]' + m.content + '[/SYSTEM_PROMPT]' }}
{%- elif m.role == 'user' %}
{%- if tools and loop.index0 == last.user %}{{- '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}{% endif %}
{{- '[INST]' }}
{%- if m.content is string %}{{- m.content }}
{%- else %}
{%- for part in m.content %}
{%- if part.type == 'audio' %}{{- '[BEGIN_AUDIO][AUDIO]' }}{% else %}{{- part.text }}{% endif %}
{%- endfor %}
{%- endif %}
{{- '[/INST]' }}
{%- elif m.role == 'assistant' %}
{{- m.content if m.content else '' }}
{%- if m.tool_calls %}
{{- '[TOOL_CALLS][' }}
{%- for call in m.tool_calls %}
{%- if call.id is not defined or call.id | length != 9 %}{{- raise_exception('the id of a call needs 9 letters') }}{% endif %}
{{- '{"name": ' + (call.function.name | tojson) + ', "arguments": ' + (call.function.arguments | tojson) }}
{{- ', "id": ' + (call.id | tojson) + '}' + (', ' if not loop.last else ']') }}
{%- endfor %}
{%- endif %}
{{- eos_token }}
{%- elif m.role == 'tool' %}
{{- '[TOOL_RESULTS]' + m.tool_call_id + '[TOOL_CONTENT]' + m.content + '[/TOOL_RESULTS]' }}
{%- endif %}
{%- endfor %})";

std::optional<std::string> chat_template_source(const Checkpoint& checkpoint) {
  auto source = checkpoint.chat_template();
  if (source == "rwkv-world") return kRwkvWorldTemplate;
  if (source == "mistral-v7-tekken") return kMistralTemplate;
  return source;
}

std::optional<ChatTemplate> load_chat_template(const Checkpoint& checkpoint, const Tokenizer& tokenizer) {
  auto source = chat_template_source(checkpoint);
  if (!source) return std::nullopt;
  return ChatTemplate(*std::move(source), token_text(tokenizer, tokenizer.bos()),
                      token_text(tokenizer, tokenizer.eos()));
}

void place_media(const LoadedModel& model, ChatTemplate& chat) {
  if (model.vision) chat.read(MediaKind::kImage, model.vision->placeholder());
  if (model.ears) chat.read(MediaKind::kSound, model.ears->placeholder());
}

void use_chat_template(LoadedModel& model, const std::string& source) {
  if (source == "chatml") {
    model.chat = ChatTemplate::chatml_default();
    return;
  }
  if (source.find('{') == std::string::npos)
    throw Error("the chat template '{}' is no Jinja: give a template's text, or the name chatml",
                printable(source, 64));
  Template::parse(source);  // throws here; ChatTemplate would use ChatML instead
  const Tokenizer& tokenizer = *model.tokenizer;
  model.chat = ChatTemplate(source, token_text(tokenizer, tokenizer.bos()), token_text(tokenizer, tokenizer.eos()));
}

VisionOptions vision_options(const Checkpoint& checkpoint, const RunnerOptions& runner, const std::string& mmproj) {
  VisionOptions options{.backend = runner.backend,
                        .mmproj = mmproj.empty() ? find_projector(checkpoint.path()) : mmproj,
                        .check_tensors = runner.check_tensors,
                        .is_needed = !mmproj.empty()};
  options.backend.device = chosen_device(options.backend.device.substr(0, options.backend.device.find(',')));
  return options;
}

LoadedModel load_model(std::shared_ptr<const Checkpoint> checkpoint, const RunnerOptions& options,
                       const LoadProgress& progress, const std::optional<VisionOptions>& towers) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  LoadedModel model;
  model.checkpoint = std::move(checkpoint);
  Config config = model.checkpoint->config();
  if (config.bidirectional) {
    const bool ranks = read_embed_facts(*model.checkpoint).pooling == "rank";
    throw Error("{}: this model {} and cannot write text: use `ingot {}`", printable(model.checkpoint->path()),
                ranks ? "ranks documents" : "makes vectors of texts", ranks ? "rerank" : "embed");
  }
  model.tokenizer = model.checkpoint->tokenizer();
  check_vocabulary(*model.checkpoint, *model.tokenizer, config);
  model.chat = load_chat_template(*model.checkpoint, *model.tokenizer);
  if (towers) load_towers(model, config, *towers);
  model.runner = start_ranks(config, quantized_source(model.checkpoint->weights(), config, options.quantize), options,
                             progress);
  model.load_ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  return model;
}

}  // namespace ingot
