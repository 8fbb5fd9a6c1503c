#include "model/speech/speech_files.h"

#include <algorithm>
#include <array>
#include <deque>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "io/ctranslate2/model_bin.h"
#include "io/ggml/speech_file.h"
#include "io/huggingface/directory.h"
#include "io/huggingface/quantization.h"
#include "io/huggingface/safetensors.h"
#include "io/huggingface/tokenizer.h"
#include "io/rank_merges.h"
#include "model/speech/languages.h"
#include "model/speech/speech_formats.h"
#include "model/speech/speech_sources.h"
#include "text/tokenizers/unicode.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCt2File = "model.bin";
constexpr int kEnglishTokens = 51864;  // the vocabulary of OpenAI's models for English alone

bool is_ct2_directory(const HfDirectory& directory) {
  return directory.has(kCt2File) && !directory.has("model.safetensors") &&
         !directory.has("model.safetensors.index.json");
}

// The ids of a list; negative ones and those beyond the vocabulary do not count. Nothing: no such list.
std::optional<std::vector<int32_t>> token_list(const Json& root, const char* key, int n_vocab) {
  const auto list = root.find(key);
  if (!list) return std::nullopt;
  std::vector<int32_t> ids;
  for (const Json& id : list->elements())
    if (const int64_t value = id.integer(INT32_MIN, INT32_MAX); value >= 0 && value < n_vocab)
      ids.push_back(static_cast<int32_t>(value));
  return ids;
}

// A list of [layer, head]. Throws Error for a head that the model lacks.
std::optional<std::vector<SpeechHead>> head_list(const Json& root, const SpeechConfig& config) {
  const auto list = root.find("alignment_heads");
  if (!list) return std::nullopt;
  std::vector<SpeechHead> heads;
  for (const Json& pair : list->elements()) {
    const std::vector<Json> parts = pair.elements();
    if (parts.size() != 2) throw pair.error("expected a layer and a head");
    heads.push_back({static_cast<int>(parts[0].integer(0, config.n_decoder_layers - 1)),
                     static_cast<int>(parts[1].integer(0, config.n_decoder_heads - 1))});
  }
  return heads;
}

// All heads of the later half of the layers.
std::vector<SpeechHead> later_heads(const SpeechConfig& config) {
  std::vector<SpeechHead> heads;
  for (int layer = config.n_decoder_layers / 2; layer < config.n_decoder_layers; ++layer)
    for (int head = 0; head < config.n_decoder_heads; ++head) heads.push_back({layer, head});
  return heads;
}

// What the checkpoint does not say.
void complete(SpeechFiles& files, const std::optional<std::vector<int32_t>>& suppressed,
              const std::optional<std::vector<int32_t>>& first) {
  if (files.alignment.empty()) files.alignment = later_heads(files.config);
  files.suppressed = suppressed ? *suppressed : non_speech_tokens(*files.tokenizer, files.tokens);
  if (first) {
    files.first_suppressed = *first;
  } else {
    files.first_suppressed = files.tokenizer->encode(" ", {.add_special = false});
    files.first_suppressed.push_back(files.tokens.end);
  }
}

std::unique_ptr<Tokenizer> tokenizer_of(const HfDirectory& directory) {
  if (!directory.has("tokenizer.json"))
    throw Error("{}: tokenizer.json is missing: add it from the repository of the model", printable(directory.path()));
  return Tokenizer::create(read_hf_tokenizer(directory, {}, false)->spec);
}

SpeechFiles open_directory(const HfDirectory& directory) {
  const JsonDocument config = directory.document("config.json");
  const auto generation = directory.find_document("generation_config.json");
  SpeechFiles files{.config = speech_config_from_hf(config.root(), directory.file("config.json")),
                    .tokenizer = tokenizer_of(directory),
                    .container = "safetensors"};
  const int n_vocab = files.config.n_vocab;
  bool is_multilingual = n_vocab != kEnglishTokens;
  std::optional<std::vector<int32_t>> suppressed, first;
  for (const JsonDocument* document : {&config, generation ? &*generation : nullptr}) {
    if (document == nullptr) continue;
    const Json root = document->root();
    if (auto list = token_list(root, "suppress_tokens", n_vocab)) suppressed = std::move(list);
    if (auto list = token_list(root, "begin_suppress_tokens", n_vocab)) first = std::move(list);
    if (auto heads = head_list(root, files.config)) files.alignment = std::move(*heads);
    if (const auto flag = root.find("is_multilingual")) is_multilingual = flag->boolean();
    if (const auto index = root.find("max_initial_timestamp_index"))
      files.latest_start = static_cast<int>(index->integer(0, 1 << 20));
  }
  files.tokens = find_speech_tokens(*files.tokenizer, is_multilingual, n_vocab, files.config.n_rows,
                                    directory.file("tokenizer.json"));
  complete(files, suppressed, first);
  auto tensors = std::make_shared<const Safetensors>(Safetensors::open_directory(directory.path()));
  files.weights = safetensors_source(std::move(tensors), HfQuantization::read(directory), directory.path());
  return files;
}

SpeechFiles open_ct2(const HfDirectory& directory) {
  auto model = std::make_shared<const Ct2Model>(Ct2Model::open(directory.file(kCt2File)));
  SpeechFiles files{
      .config = speech_config_from_ct2(*model), .tokenizer = tokenizer_of(directory), .container = "CTranslate2"};
  const int n_vocab = files.config.n_vocab;
  files.tokens = find_speech_tokens(*files.tokenizer, n_vocab != kEnglishTokens, n_vocab, files.config.n_rows,
                                    directory.file("tokenizer.json"));
  std::optional<std::vector<int32_t>> suppressed, first;
  if (const auto config = directory.find_document("config.json")) {
    suppressed = token_list(config->root(), "suppress_ids", n_vocab);
    first = token_list(config->root(), "suppress_ids_begin", n_vocab);
    if (auto heads = head_list(config->root(), files.config)) files.alignment = std::move(*heads);
  }
  complete(files, suppressed, first);
  files.weights = ct2_source(std::move(model));
  return files;
}

// The file lists the tokens of text by rank. The others follow in a fixed order: end, start, languages, tasks, times.
std::unique_ptr<Tokenizer> tokenizer_of(const GgmlSpeechFile& file) {
  constexpr std::array kTasks = {"<|translate|>",   "<|transcribe|>", "<|startoflm|>",
                                 "<|startofprev|>", "<|nospeech|>",   "<|notimestamps|>"};
  const auto all = file.tokens();
  const auto end = std::ranges::find(all, std::string_view("<|endoftext|>"));
  const std::vector<std::string_view> text(all.begin(), end);
  const int64_t n_text = std::ssize(text), n_times = file.sizes().n_audio_ctx + 1,
                n_languages = file.sizes().n_vocab - n_text - 2 - std::ssize(kTasks) - n_times;
  if (n_languages < 0 || n_languages > std::ssize(kSpeechLanguages))
    throw Error("{}: {} tokens of text among {} leave {} for languages: expected 0 to {}", printable(file.name()),
                n_text, file.sizes().n_vocab, n_languages, std::ssize(kSpeechLanguages));
  TokenizerSpec spec;
  std::deque<std::string> strings;
  const auto add = [&](std::string token, TokenType type) {
    spec.tokens.push_back(strings.emplace_back(std::move(token)));
    spec.token_types.push_back(static_cast<int32_t>(type));
  };
  std::set<std::string_view> seen;
  for (const std::string_view token : text) {
    if (token.empty() || token.size() > kMaxRankedBytes || !seen.insert(token).second)
      throw Error("{}: token {} is empty, too long or occurs twice", printable(file.name()), spec.tokens.size());
    add(gpt2_from_bytes(token), TokenType::kNormal);
  }
  spec.source = file.name(), spec.model = kByteLevelBpe, spec.pre = "gpt-2";
  for (std::string& merge : rank_merges(text)) spec.merges.push_back(strings.emplace_back(std::move(merge)));
  add("<|endoftext|>", TokenType::kControl);
  add("<|startoftranscript|>", TokenType::kControl);
  for (int64_t i = 0; i < n_languages; ++i) add(fmt::format("<|{}|>", kSpeechLanguages[i].code), TokenType::kControl);
  for (const char* task : kTasks) add(task, TokenType::kControl);
  spec.eos = n_text;
  return Tokenizer::create(spec);
}

SpeechFiles open_ggml(const std::string& path) {
  auto file = std::make_shared<const GgmlSpeechFile>(GgmlSpeechFile::open(path));
  SpeechFiles files{.config = speech_config_from_ggml(*file), .tokenizer = tokenizer_of(*file), .container = "ggml"};
  const int n_vocab = files.config.n_vocab;
  files.tokens =
      find_speech_tokens(*files.tokenizer, n_vocab != kEnglishTokens, n_vocab, files.config.n_rows, file->name());
  complete(files, std::nullopt, std::nullopt);
  files.weights = ggml_speech_source(std::move(file));
  return files;
}

bool begins_as_ggml(const std::string& path) {
  try {
    return GgmlSpeechFile::is_one(MappedFile(path).bytes());
  } catch (const Error&) {
    return false;
  }
}

SpeechFiles open_as_stored(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) throw Error("{}: no such file or directory", printable(path));
  if (!fs::is_directory(path, error)) {
    const fs::path file(path);
    if (file.filename() == kCt2File)
      return open_ct2(HfDirectory(file.has_parent_path() ? file.parent_path().string() : "."));
    return open_ggml(path);
  }
  const HfDirectory directory(path);
  if (is_ct2_directory(directory)) return open_ct2(directory);
  if (!directory.has("config.json"))
    throw Error("{}: not a speech model: it has neither config.json with safetensors nor model.bin", printable(path));
  const JsonDocument config = directory.document("config.json");
  if (const auto type = config.root().find("model_type"); !type || type->string() != "whisper")
    throw Error("{}: not a speech model: model_type of config.json is {}: expected whisper", printable(path),
                type ? type->describe() : "missing");
  return open_directory(directory);
}

}  // namespace

bool is_speech_model(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return begins_as_ggml(path);
  if (!HfDirectory::is_one(path)) return fs::exists(fs::path(path) / kCt2File, error);
  try {
    const HfDirectory directory(path);
    if (is_ct2_directory(directory)) return true;
    const auto type = directory.document("config.json").root().find("model_type");
    return type && type->is_string() && type->string() == "whisper";
  } catch (const Error&) {
    return false;
  }
}

SpeechFiles open_speech_files(const std::string& path, const std::string& quantize) {
  SpeechFiles files = open_as_stored(path);
  files.weights = reformatted_speech(std::move(files.weights), quantize);
  return files;
}

}  // namespace ingot
