#include "model/ears/ear_model.h"

#include <algorithm>
#include <chrono>
#include <mutex>

#include "backend/blocks/merge.h"
#include "backend/device_name.h"
#include "backend/host_pool.h"
#include "base/error.h"
#include "base/memory_error.h"
#include "base/system.h"
#include "io/gguf/gguf.h"
#include "io/huggingface/directory.h"
#include "io/json.h"
#include "model/ears/ear_config.h"
#include "model/speech/log_mel.h"

namespace ingot {
namespace {

constexpr int kWindowsOnGpu = 4;                 // encoded at once
constexpr size_t kFreeFloats = size_t{4} << 20;  // kept for the next vectors
constexpr float kGatedEps = 1e-6f;               // of the norms of EarProjector::kGated

// The projector at the end. Norms before it are those of the encoder, but for means, which are normalised themselves.
MergeBlock load_projector(const EarConfig& c, PlacedTensors& tensors, const NormArgs& norm, bool is_gguf) {
  const int64_t width = int64_t{c.n_merged} * c.encoder.dim;
  const std::string first = is_gguf ? c.family->gguf1 : c.family->hf1,
                    second = is_gguf ? c.family->gguf2 : c.family->hf2;
  MergeBlock b{.n_merged = c.n_merged, .averages = c.family->projector == EarProjector::kAverage};
  (b.averages ? b.merged_norm : b.norm) = norm;
  switch (c.family->projector) {
    case EarProjector::kAverage:
      b.w1 = tensors.matrix(first + ".weight", c.out_dim, c.encoder.dim);
      b.b1 = tensors.vector(first + ".bias", c.out_dim);
      break;
    case EarProjector::kMlp:
      b.w1 = tensors.matrix(first + ".weight", c.out_dim, width);
      b.w2 = tensors.matrix(second + ".weight", c.out_dim, c.out_dim);
      b.b1 = tensors.vector(first + ".bias", c.out_dim, true);
      b.b2 = tensors.vector(second + ".bias", c.out_dim, true);
      break;
    case EarProjector::kGated:
      const int64_t hidden = tensors.length("mm.a.norm_mid.weight");
      const auto rms = [&](const char* name, int64_t n) {
        return NormArgs{.weight = tensors.vector(name, n), .eps = kGatedEps, .kind = NormKind::kRms};
      };
      b.is_gated = true, b.act = Activation::kSilu;
      b.merged_norm = rms("mm.a.norm_pre.weight", width);
      b.gated_norm = rms("mm.a.norm_mid.weight", hidden);
      b.w1 = tensors.matrix(first + ".weight", 2 * hidden, width);
      b.w2 = tensors.matrix(second + ".weight", c.out_dim, hidden);
  }
  return b;
}

}  // namespace

struct EarModel::Parts {
  EarConfig config;
  std::unique_ptr<Backend> backend;
  std::optional<HostPool> host;  // of vectors
  SoundEncoder encoder;
  Program program;
  std::vector<std::shared_ptr<void>> kept;
  LogMel mel;
  int n_windows = 1;  // of a step
};

EarModel::EarModel(const EarConfig& config, std::unique_ptr<WeightSource> source, const BackendOptions& options,
                   std::string placeholder, int32_t token, std::string identity)
    : Sense(MediaKind::kSound, std::move(placeholder), token, config.family->begin, config.family->end),
      identity_(std::move(identity)),
      source_(std::move(source)),
      parts_(std::make_unique<Parts>(Parts{.config = config, .mel = LogMel(config.encoder.n_mels)})) {
  Parts& p = *parts_;
  p.backend = create_backend(options);
  p.host.emplace(*p.backend, kFreeFloats);
  if (const size_t free = p.backend->available_bytes(), needed = source_->total_bytes(); needed > free)
    throw MemoryError(
        "the file of the ears has {}, but {} has only {} free: leave the ears out, or put them on another "
        "device",
        human_bytes(needed), options.device, human_bytes(free));
  const SoundEncoderSizes& e = config.encoder;
  // The sums of a shared step may depend on its other windows, and a group of rows must not reach into the next window.
  if (is_cuda(options.device) && !options.deterministic && e.n_rows % config.n_merged == 0) p.n_windows = kWindowsOnGpu;
  PlacedTensors tensors(*source_, *p.backend, "the ears");
  const bool is_gguf = tensors.has("a.conv1d.1.weight");
  const std::string prefix = tensors.has("model.audio_tower.conv1.weight") ? "model.audio_tower." : "audio_tower.";
  p.encoder =
      load_sound_encoder(e, is_gguf ? gguf_sound_names() : hf_sound_names(prefix), tensors, *p.backend, p.n_windows);
  p.program.dim = e.dim;
  add_to(p.program, p.encoder);
  p.program.blocks.emplace_back(load_projector(config, tensors, p.encoder.norm, is_gguf));
  p.kept = tensors.take_kept();
  p.program.allocate(*p.backend,
                     {.max_tokens = e.n_rows * p.n_windows, .max_seqs = p.n_windows, .max_kv_len = e.n_rows});
  // The first recording on a GPU would also wait for the libraries and for their choice of kernels.
  if (is_cuda(options.device)) encode({.samples = {0.0f}, .n_rows = config.window_rows()});
}

EarModel::~EarModel() = default;

const EarConfig& EarModel::config() const { return parts_->config; }

PreparedMedia EarModel::prepare(const MediaFile& file, const MediaLimits& limits, std::string_view content) const {
  PreparedMedia recording;
  const auto audio = open_audio(*file.bytes, limits.sounds);
  constexpr size_t kPiece = size_t{1} << 16;  // samples
  for (size_t n = kPiece; n == kPiece;) {
    const size_t at = recording.samples.size();
    recording.samples.resize(at + kPiece);
    n = audio->read(std::span(recording.samples).subspan(at));
    recording.samples.resize(at + n);
  }
  if (recording.samples.empty()) throw Error("the audio has no samples");
  const size_t window = static_cast<size_t>(config().window_samples());
  const size_t n_windows = (recording.samples.size() + window - 1) / window;
  recording.n_rows = static_cast<int>(n_windows) * config().window_rows();
  recording.digest = media_digest(fmt::format("{} {}", identity_, content));
  return recording;
}

std::string EarModel::prompt_text(const PreparedMedia& recording) const {
  std::string text;
  for (int i = 0; i < recording.n_rows; ++i) text += placeholder();
  return text;
}

EncodedMedia EarModel::encode(const PreparedMedia& recording) {
  const auto start = std::chrono::steady_clock::now();
  const SoundEncoderSizes& e = config().encoder;
  const int n_windows = recording.n_rows / config().window_rows();
  const std::vector<float> features = parts_->mel.features(recording.samples, n_windows * 2 * e.n_rows);
  const size_t n_floats = static_cast<size_t>(recording.n_rows) * static_cast<size_t>(config().out_dim);
  const auto n_features = static_cast<size_t>(2 * e.n_rows) * static_cast<size_t>(e.n_mels),
             n_outputs = static_cast<size_t>(config().window_rows()) * static_cast<size_t>(config().out_dim);
  std::shared_ptr<float[]> rows;
  for (int w = 0; w < n_windows; w += parts_->n_windows) {
    const auto first = static_cast<size_t>(w), n = static_cast<size_t>(std::min(parts_->n_windows, n_windows - w));
    const std::lock_guard turn(mutex_);
    if (!rows) rows = parts_->host->take(n_floats);
    encode_windows(std::span(features).subspan(first * n_features, n * n_features),
                   std::span(rows.get(), n_floats).subspan(first * n_outputs, n * n_outputs));
  }
  EncodedMedia encoded;
  PromptEmbedding& run = encoded.runs.emplace_back(
      PromptEmbedding{.n_rows = recording.n_rows, .digest = recording.digest, .rows = {std::move(rows), n_floats}});
  if (!are_finite(run.rows.all())) throw Error("the ears gave a number that is not finite for this recording");
  encoded.tower_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return encoded;
}

void EarModel::encode_windows(std::span<const float> features, std::span<float> rows) {
  Parts& p = *parts_;
  const SoundBatch sounds(config().encoder, features);
  CHECK_LE(sounds.n_windows(), p.n_windows);
  p.backend->run(p.program, sounds.batch());
  const auto* merge = p.program.blocks.back().as<MergeBlock>();
  p.backend->download(rows.data(), merge->out.slice_rows(0, static_cast<int64_t>(rows.size()) / config().out_dim));
}

namespace {

// The token that stands for a vector, and its text.
std::pair<std::string, int32_t> audio_token(const EarConfig& config, const Tokenizer& tokenizer) {
  for (const std::string name : {config.family->token, config.family->other_token})
    if (const auto token = tokenizer.find(name); token && !name.empty()) return {name, *token};
  throw Error("{}: the model's tokenizer lacks the audio token {}: the ears belong to another model", config.source,
              config.family->token);
}

std::unique_ptr<EarModel> make_ears(const EarConfig& config, std::unique_ptr<WeightSource> source,
                                    const Tokenizer& tokenizer, const EarOptions& options, const std::string& digest) {
  auto [name, token] = audio_token(config, tokenizer);
  if (options.check_tensors) source = checked_source(std::move(source));
  return std::make_unique<EarModel>(config, std::move(source), options.backend, std::move(name), token,
                                    fmt::format("{} {}", config.family->gguf_name, digest));
}

}  // namespace

std::unique_ptr<EarModel> open_ears(const Checkpoint& checkpoint, const Config& text, const Tokenizer& tokenizer,
                                    const EarOptions& options) {
  if (options.projector) {
    if (!gguf_has_ears(*options.projector)) return nullptr;
    const auto file = gguf_checkpoint(options.projector);
    return make_ears(ear_config_from_gguf(*options.projector, text.dim), file->weights(), tokenizer, options,
                     file->digest());
  }
  const HfDirectory* directory = checkpoint.directory();
  if (directory == nullptr) return nullptr;
  const JsonDocument document = directory->document("config.json");
  if (!has_known_ears(document.root())) return nullptr;
  return make_ears(ear_config_from_hf(document.root(), directory->file("config.json"), text.dim), checkpoint.weights(),
                   tokenizer, options, checkpoint.digest());
}

}  // namespace ingot
