// /completion and /infill: llama-server's own completion, for its clients and for editors.
#include <fmt/format.h>

#include "base/json.h"
#include "server/api/api.h"
#include "server/fields/constraint_fields.h"
#include "server/fields/request_fields.h"
#include "text/infill.h"

namespace ingot {
namespace {

constexpr FieldAlias kLlamaAliases[] = {{"max_tokens", "n_predict"}};
constexpr size_t kMaxExtras = 256;

class LlamaWriter final : public AnswerWriter {
 public:
  struct Options {
    std::string model;
    bool return_tokens = false, probabilities = false, timings = false;
    std::vector<std::string> prompts;  // as text
    std::vector<int> n_prompt, slots;  // tokens and slot of each
    JsonValue settings;
    std::vector<std::string> warnings;
  };
  explicit LlamaWriter(Options options) : o_(std::move(options)), n_predicted_(o_.n_prompt.size()) {}

  void begin(const Totals&, std::string&) override {}
  void progress(int choice, const PromptState& prompt, std::string& out) override {
    JsonValue json = piece(choice, "", {});
    json["prompt_progress"] = progress_json(prompt);
    append_event(out, json);
  }
  void delta(int choice, const Delta& d, std::string& out) override {
    n_predicted_[static_cast<size_t>(choice)] += static_cast<int>(d.tokens.size());
    JsonValue json = piece(choice, d.text, d.tokens);
    if (o_.timings) json["timings"] = timings_json(d.so_far);
    append_event(out, json);
  }
  void choice_end(int choice, const ChoiceEnd& end, std::string& out) override {
    append_event(out, last(choice, "", {}, end, end.so_far));
    failure_ += end.failure;
  }
  void end(const Totals&, std::string& out) override {
    if (!failure_.empty()) out += error_event(ApiError(500, failure_));
  }
  std::string whole(const std::vector<ChoiceResult>& results, const Totals& totals) override {
    JsonValue all = JsonValue::array();
    for (size_t i = 0; i < results.size(); ++i) {
      const Delta& text = results[i].whole;
      all.push_back(last(static_cast<int>(i), text.text, text.tokens, results[i].end, totals));
    }
    return dump_json(all.size() == 1 ? all[0] : all);
  }

 private:
  // [{"id", "token", "bytes", "logprob", "top_logprobs"}]
  static JsonValue probabilities_json(const std::vector<TokenText>& tokens) {
    JsonValue json = token_logprobs_json(tokens);
    for (size_t i = 0; i < tokens.size(); ++i) {
      json[i]["id"] = tokens[i].id;
      for (size_t k = 0; k < tokens[i].top.size(); ++k) json[i]["top_logprobs"][k]["id"] = tokens[i].top[k].id;
    }
    return json;
  }

  JsonValue piece(int choice, const std::string& text, const std::vector<TokenText>& tokens) const {
    JsonValue ids = JsonValue::array();
    for (const TokenText& token : tokens) ids.push_back(token.id);
    const auto i = static_cast<size_t>(choice);
    JsonValue json = {{"index", choice},
                      {"content", text},
                      {"tokens", std::move(ids)},
                      {"stop", false},
                      {"id_slot", o_.slots[i]},
                      {"tokens_predicted", n_predicted_[i]},
                      {"tokens_evaluated", o_.n_prompt[i]}};
    if (o_.probabilities && !tokens.empty()) json["completion_probabilities"] = probabilities_json(tokens);
    return json;
  }

  JsonValue last(int choice, const std::string& text, const std::vector<TokenText>& tokens, const ChoiceEnd& end,
                 const Totals& totals) const {
    const auto i = static_cast<size_t>(choice);
    JsonValue json = piece(choice, text, tokens);
    if (!o_.return_tokens) json["tokens"] = JsonValue::array();
    json["stop"] = true;
    json["tokens_predicted"] = end.n_tokens;
    json["model"] = o_.model;
    json["generation_settings"] = o_.settings;
    json["prompt"] = o_.prompts[i];
    json["has_new_line"] = text.find('\n') != text.npos;
    json["truncated"] = false;
    const std::string_view reason = end.reason;
    json["stop_type"] = reason == "length"          ? "limit"
                        : reason == "error"         ? "none"
                        : end.stop_string.empty() ? "eos"
                                                  : "word";
    json["stopping_word"] = end.stop_string;
    json["tokens_cached"] = o_.n_prompt[i] + end.n_tokens;
    json["timings"] = timings_json(totals);
    add_clamped(json, totals);
    if (choice == 0 && !o_.warnings.empty()) json["warnings"] = o_.warnings;
    return json;
  }

  const Options o_;
  std::vector<int> n_predicted_;  // of streams: tokens of each choice so far
  std::string failure_;
};

JsonValue settings_json(const GenerationSpec& spec) {
  const SamplingParams& p = spec.sampling;
  JsonValue stages = JsonValue::array();
  for (const SamplerStage stage : p.stages) stages.push_back(kSamplerStages[static_cast<size_t>(stage)]);
  if (p.stages.empty())
    for (const std::string_view name : kSamplerStages) stages.push_back(name);
  return {{"seed", p.seed},
          {"temperature", p.temperature},
          {"dynatemp_range", p.dynatemp_range},
          {"dynatemp_exponent", p.dynatemp_exponent},
          {"top_k", p.top_k},
          {"top_p", p.top_p},
          {"min_p", p.min_p},
          {"top_n_sigma", p.top_n_sigma},
          {"xtc_probability", p.xtc_probability},
          {"xtc_threshold", p.xtc_threshold},
          {"typical_p", p.typical_p},
          {"repeat_last_n", p.penalty_window},
          {"repeat_penalty", p.repetition_penalty},
          {"presence_penalty", p.presence_penalty},
          {"frequency_penalty", p.frequency_penalty},
          {"dry_multiplier", p.dry_multiplier},
          {"dry_base", p.dry_base},
          {"dry_allowed_length", p.dry_allowed_length},
          {"dry_penalty_last_n", p.dry_window},
          {"mirostat", p.mirostat},
          {"mirostat_tau", p.mirostat_tau},
          {"mirostat_eta", p.mirostat_eta},
          {"stop", spec.stops},
          {"n_predict", spec.max_tokens},
          {"ignore_eos", spec.ignore_eos},
          {"stream", spec.stream},
          {"samplers", std::move(stages)}};
}

// A text, or a list of texts and token ids, which are concatenated.
std::vector<int32_t> mixed_prompt(const JsonValue& given, const std::string& where, const Tokenizer& tokenizer) {
  const auto encode = [&](const JsonValue& text, bool is_first) {
    return tokenizer.encode(text.get_ref<const std::string&>(), {.add_special = is_first, .parse_special = true});
  };
  if (given.is_string()) return encode(given, true);
  if (!given.is_array()) refuse_value(where, "must be a string, or an array of strings and token ids");
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < given.size(); ++i) {
    const std::vector<int32_t> more =
        given[i].is_string() ? encode(given[i], i == 0) : token_ids_of(JsonValue::array({given[i]}), where);
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  return tokens;
}

// One prompt, or an array of prompts: strings only, or arrays.
std::vector<Prompt> read_prompts(const Fields& fields, const Tokenizer& tokenizer) {
  const JsonValue& given = fields.at("prompt");
  const auto is_prompt = [](const JsonValue& one) { return one.is_string() || one.is_array(); };
  const bool is_many = given.is_array() && !given.empty() && std::ranges::all_of(given, is_prompt);
  if (!is_many) return {{"prompt", mixed_prompt(given, "prompt", tokenizer)}};
  if (given.size() > kMaxPrompts)
    fields.refuse("prompt", fmt::format("has {} elements: at most {}", given.size(), kMaxPrompts));
  std::vector<Prompt> prompts;
  for (const JsonValue& one : given) {
    const std::string where = fmt::format("prompt[{}]", prompts.size());
    prompts.push_back({where, mixed_prompt(one, where, tokenizer)});
  }
  return prompts;
}

// llama.cpp's two forms of a prompt with images. The prompt names each image: "[img-12]" for {"data", "id": 12} in
// image_data, or "<__media__>" for the next of multimodal_data in {"prompt_string", "multimodal_data"}.
struct NamedImages {
  std::string text;
  std::vector<std::pair<std::string, std::string>> images;  // names in the text, and Base64
  std::string field;
};

NamedImages read_named_images(const Fields& fields) {
  const JsonValue& prompt = fields.at("prompt");
  NamedImages named;
  if (prompt.is_object()) {
    named.text = string_member(prompt, "prompt_string", "prompt");
    named.field = "prompt.multimodal_data";
    const JsonValue* data = find_member(prompt, "multimodal_data");
    if (data && !data->is_array()) refuse_value(named.field, "must be an array");
    for (size_t i = 0; data && i < data->size(); ++i) {
      if (!(*data)[i].is_string()) refuse_value(fmt::format("{}[{}]", named.field, i), "must be Base64");
      named.images.emplace_back("<__media__>", (*data)[i].get<std::string>());
    }
    return named;
  }
  if (!prompt.is_string()) fields.refuse("prompt", "must be a string if there are images");
  named.text = prompt.get<std::string>();
  named.field = "image_data";
  for (const JsonValue& image : fields.at("image_data")) {
    const std::string where = fmt::format("image_data[{}]", named.images.size());
    const Fields one(image, where + ".");
    named.images.emplace_back(fmt::format("[img-{}]", one.integer("id", 0, INT32_MAX).value_or(0)),
                              string_member(image, "data", where));
  }
  return named;
}

// The text with the model's placeholders, and the images in their order in the text.
ChatPrompt encode_named_images(const ApiCall& call, NamedImages named) {
  const ServedModel& model = *call.model;
  JsonValue parts = JsonValue::array();
  RenderedChat rendered;
  for (size_t begin = 0; begin <= named.text.size();) {
    size_t at = named.text.npos, which = 0;
    for (size_t i = 0; i < named.images.size(); ++i) {
      const size_t found = named.text.find(named.images[i].first, begin);
      const bool is_next = found < at && !named.images[i].second.empty();
      if (is_next) at = found, which = i;
    }
    rendered.text.append(named.text, begin, at == named.text.npos ? at : at - begin);
    if (at == named.text.npos) break;
    rendered.text += call.model->vision().placeholder();
    begin = at + named.images[which].first.size();
    parts.push_back(image_data_part(std::exchange(named.images[which].second, {}),
                                    fmt::format("{}[{}]", named.field, which)));
  }
  if (parts.size() < named.images.size())
    refuse_value(named.field, fmt::format("has {} images, but the prompt names {}", named.images.size(), parts.size()));
  JsonValue messages = {{{"content", std::move(parts)}}};
  std::vector<MediaFile> files = take_media(call, messages);
  try {
    ChatPrompt prompt{.media = call.model->media()->prepare(std::move(files))};
    call.model->media()->expand(rendered, prompt.media);
    prompt.tokens = model.tokenizer().encode(rendered.text, {.add_special = true, .parse_special = true});
    return prompt;
  } catch (const Error& error) {
    throw ApiError(400, printable(error.what(), 1024), named.field);
  }
}

void answer(const ApiCall& call, const Fields& fields, std::vector<Prompt> prompts, ChatPrompt with_images = {}) {
  ServedModel& model = *call.model;
  GenerationSpec spec;
  read_sampling(call, fields, spec);
  spec.stream = fields.boolean("stream").value_or(false);
  const auto n_probs = fields.integer("n_probs", 0, kMaxLogprobs).value_or(0);
  if (n_probs > 0) spec.sampling.n_logprobs = static_cast<int>(n_probs);
  spec.wants_tokens = true;
  spec.wants_totals = spec.stream;
  spec.wants_progress = fields.boolean("return_progress").value_or(false) && spec.stream;
  read_max_tokens(fields, {"max_tokens"}, spec);
  for (Prompt& prompt : prompts) spec.prompts.push_back(std::move(prompt.tokens));
  truncate_prompts(fields, model, spec);
  LlamaWriter::Options options{.model = model.id(),
                               .return_tokens = fields.boolean("return_tokens").value_or(false),
                               .probabilities = n_probs > 0,
                               .timings = fields.boolean("timings_per_token").value_or(false)};
  for (size_t i = 0; i < prompts.size(); ++i) {
    check_prompt(model, spec.prompts[i], prompts[i].path.c_str(), with_images.media);
    options.prompts.push_back(model.tokenizer().decode(spec.prompts[i]));
    options.n_prompt.push_back(static_cast<int>(spec.prompts[i].size()));
  }
  ServedModel::Ticket ticket = admit(model, spec.n_choices());
  if (spec.slots.empty())
    for (const std::vector<int32_t>& prompt : spec.prompts) spec.slots.push_back(model.slots().choose(prompt));
  spec.slots.resize(spec.prompts.size(), spec.slots.back());
  options.slots = spec.slots;
  encode_media(call, with_images, spec);
  constrain_text(call, spec);
  options.warnings = spec.constraint_warnings;
  options.settings = settings_json(spec);
  GenerationRun::start(call.model, std::move(ticket), std::move(spec), call.pacer,
                       std::make_unique<LlamaWriter>(std::move(options)), call.responder);
}

// Other files of the project, as llama-server writes them before the text around the gap.
std::vector<int32_t> extra_tokens(const Fields& fields, const Tokenizer& tokenizer) {
  const JsonValue* extras = fields.find("input_extra");
  std::vector<int32_t> tokens;
  if (!extras) return tokens;
  if (extras->size() > kMaxExtras)
    fields.refuse("input_extra", fmt::format("has {} elements: at most {}", extras->size(), kMaxExtras));
  const auto add = [&](const std::string& text) {
    const std::vector<int32_t> more = tokenizer.encode(text, {.add_special = false, .parse_special = false});
    tokens.insert(tokens.end(), more.begin(), more.end());
  };
  const auto repository = tokenizer.find("<|repo_name|>"), separator = tokenizer.find("<|file_sep|>");
  if (repository && separator && !extras->empty()) {
    tokens.push_back(*repository);
    add("myproject\n");
  }
  for (size_t i = 0; i < extras->size(); ++i) {
    const Fields extra((*extras)[i], fmt::format("input_extra[{}].", i));
    const std::string text = extra.string("text", 16 << 20).value_or(""),
                      file = extra.string("filename", 4096).value_or("tmp");
    if (separator) {
      tokens.push_back(*separator);
      add(file + '\n');
    } else {
      add("\n\n--- snippet ---\n\n");
    }
    add(text);
  }
  if (separator && !extras->empty()) {
    tokens.push_back(*separator);
    add("filename\n");
  }
  return tokens;
}

}  // namespace

void answer_llama_completion(const ApiCall& call) {
  const Fields fields(call.body, "", kLlamaAliases);
  const JsonValue* images = fields.find("image_data");
  if (!fields.at("prompt").is_object() && (!images || images->empty()))
    return answer(call, fields, read_prompts(fields, call.model->tokenizer()));
  if (!call.model->reads(MediaKind::kImage))
    refuse_value(images ? "image_data" : "prompt", "names images, but this model reads text only");
  ChatPrompt prompt = encode_named_images(call, read_named_images(fields));
  std::vector<Prompt> prompts = {{"prompt", prompt.tokens}};
  answer(call, fields, std::move(prompts), std::move(prompt));
}

void answer_llama_infill(const ApiCall& call) {
  const Fields fields(call.body, "", kLlamaAliases);
  const Tokenizer& tokenizer = call.model->tokenizer();
  const auto tokens_of = [&](const char* name) {
    return tokenizer.encode(fields.string(name, 16 << 20).value_or(""), {.add_special = false, .parse_special = false});
  };
  fields.at("input_prefix");
  fields.at("input_suffix");
  auto middle = infill_prompt(tokenizer, tokens_of("input_prefix"), tokens_of("input_suffix"), false);
  if (!middle) fields.refuse("input_prefix", "needs a model with fill-in-the-middle tokens; this model has none");
  std::vector<int32_t> tokens;
  if (tokenizer.add_bos() && tokenizer.bos()) tokens.push_back(*tokenizer.bos());
  for (const std::vector<int32_t>& part : {extra_tokens(fields, tokenizer), *middle, tokens_of("prompt")})
    tokens.insert(tokens.end(), part.begin(), part.end());
  answer(call, fields, {{"input_prefix", std::move(tokens)}});
}

}  // namespace ingot
