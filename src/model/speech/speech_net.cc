#include "model/speech/speech_net.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <stdexcept>

#include "backend/blocks/cross_attention.h"
#include "backend/blocks/embed.h"
#include "backend/blocks/head.h"
#include "backend/blocks/pool.h"
#include "backend/host_pool.h"
#include "base/error.h"
#include "base/memory_error.h"
#include "base/system.h"
#include "model/speech/sound_encoder.h"

namespace ingot {
namespace {

constexpr int kSpeechBlockSize = 16;  // tokens of a KV block
constexpr float kSpeechNormEps = 1e-5f;

int blocks_for(int n) { return (n + kSpeechBlockSize - 1) / kSpeechBlockSize; }

SoundEncoderSizes sizes_of(const SpeechConfig& c) {
  return {.n_mels = c.n_mels,
          .n_rows = c.n_rows,
          .dim = c.dim,
          .n_layers = c.n_encoder_layers,
          .n_heads = c.n_encoder_heads,
          .ffn = c.encoder_ffn,
          .eps = kSpeechNormEps};
}

// Makes the blocks of the decoder, with their weights.
class SpeechLoader {
 public:
  SpeechLoader(const SpeechConfig& config, WeightSource& source, Backend& backend)
      : c_(config), tensors_(source, backend, "the speech model") {}

  EmbedBlock embedding() {
    EmbedBlock b{
        .table = tensors_.matrix("model.decoder.embed_tokens.weight", c_.n_vocab, c_.dim, kForMatmul | kForEmbedding)};
    b.positions = positions("model.decoder.embed_positions.weight", c_.n_ctx);
    return b;
  }

  AttentionBlock attention(const std::string& layer, int index) {
    const std::string name = layer + "self_attn.";
    AttentionBlock b{.norm = norm(layer + "self_attn_layer_norm")};
    load_square_attention(b, tensors_, c_.dim, name + "q_proj", name + "k_proj", name + "v_proj", name + "out_proj");
    b.attention = sound_attention(c_.dim, c_.n_decoder_heads, index);
    b.attention.causal = true;
    return b;
  }

  CrossAttentionBlock cross_attention(const std::string& layer, int index) {
    const std::string name = layer + "encoder_attn.";
    CrossAttentionBlock b{.norm = norm(layer + "encoder_attn_layer_norm")};
    load_square_attention(b, tensors_, c_.dim, name + "q_proj", name + "k_proj", name + "v_proj", name + "out_proj");
    b.attention = sound_attention(c_.dim, c_.n_decoder_heads, index);
    return b;
  }

  FeedForwardBlock feed_forward(const std::string& layer) {
    return sound_feed_forward(tensors_, norm(layer + "final_layer_norm"), c_.dim, c_.decoder_ffn, layer + "fc1",
                              layer + "fc2");
  }

  NormArgs norm(const std::string& name) { return sound_norm(tensors_, name, c_.dim, kSpeechNormEps); }
  PlacedTensors& tensors() { return tensors_; }

  std::vector<std::shared_ptr<void>> take_kept() { return tensors_.take_kept(); }

 private:
  Tensor positions(const std::string& name, int n) {
    return tensors_.upload(tensors_.numbers(name, n, c_.dim), n, c_.dim);
  }

  const SpeechConfig& c_;
  PlacedTensors tensors_;
};

}  // namespace

struct SpeechNet::Parts {
  std::unique_ptr<Backend> backend;
  SoundEncoder sounds;
  std::unique_ptr<KvCache> text_kv, sound_kv;
  Program encoder, decoder;
  std::vector<std::shared_ptr<void>> kept;
  std::optional<HostPool> host;
  std::shared_ptr<float[]> logits;  // [most_logits, n_vocab]
  std::vector<std::vector<int32_t>> text_blocks;  // of each text
  std::vector<int> holders;                       // [blocks of text_kv]: the number of texts that have the block
  std::vector<int32_t> sound_rows;                // of each window
};

SpeechNet::SpeechNet(const SpeechConfig& config, std::unique_ptr<WeightSource> source, const BackendOptions& backend,
                     const SpeechRoom& room, std::vector<SpeechHead> alignment)
    : config_(config),
      room_(room),
      alignment_(std::move(alignment)),
      source_(std::move(source)),
      parts_(std::make_unique<Parts>()) {
  CHECK(room.heard >= 1 && room.windows >= room.heard && room.texts >= room.windows);
  parts_->backend = create_backend(backend);
  if (const size_t free = parts_->backend->available_bytes(), needed = source_->total_bytes(); needed > free)
    throw MemoryError("the speech model has {}, but {} has only {} free: take a smaller model, or another device",
                      human_bytes(needed), backend.device, human_bytes(free));
  load();
  allocate();
}

SpeechNet::~SpeechNet() = default;

const Backend& SpeechNet::backend() const { return *parts_->backend; }

const CrossAttentionBlock& SpeechNet::cross_attention(int layer) {
  for (Block& block : parts_->decoder.blocks)
    if (const auto* cross = block.as<CrossAttentionBlock>(); cross != nullptr && cross->attention.layer == layer)
      return *cross;
  throw std::logic_error("no such layer");
}

void SpeechNet::load() {
  const SpeechConfig& c = config_;
  Parts& p = *parts_;
  const DType type = p.backend->act_dtype() == DType::kF32 ? DType::kF32 : DType::kF16;
  const auto shape = [&](int n_layers, int n_heads, int n_blocks) {
    return KvShape{.n_layers = n_layers,
                   .n_kv_heads = n_heads,
                   .head_dim = c.dim / n_heads,
                   .block_size = kSpeechBlockSize,
                   .n_blocks = n_blocks,
                   .dtype = type};
  };
  p.text_kv = p.backend->make_kv(shape(c.n_decoder_layers, c.n_decoder_heads, blocks_for(c.n_ctx) * room_.texts));
  p.text_blocks.resize(static_cast<size_t>(room_.texts));
  p.holders.resize(static_cast<size_t>(p.text_kv->shape.n_blocks));
  p.sound_rows.resize(static_cast<size_t>(room_.windows), c.n_rows);
  // A step reads all keys of its sounds, so their type decides its speed.
  KvShape sound = shape(c.n_decoder_layers, c.n_decoder_heads, blocks_for(c.n_rows) * room_.windows);
  sound.table = 1, sound.of_source = true;
  if (p.backend->name() != "ref") sound.dtype = DType::kF16;
  p.sound_kv = p.backend->make_kv(sound);

  SpeechLoader loader(c, *source_, *p.backend);
  p.encoder.dim = p.decoder.dim = p.decoder.source_dim = c.dim;
  p.sounds =
      load_sound_encoder(sizes_of(c), hf_sound_names("model.encoder."), loader.tensors(), *p.backend, room_.heard);
  add_to(p.encoder, p.sounds);
  p.encoder.blocks.emplace_back(PoolBlock{.norm = p.sounds.norm, .pools = false});

  const EmbedBlock embedding = loader.embedding();
  p.decoder.blocks.emplace_back(embedding);
  for (int i = 0; i < c.n_decoder_layers; ++i) {
    const std::string layer = fmt::format("model.decoder.layers.{}.", i);
    AttentionBlock attention = loader.attention(layer, i);
    attention.kv = p.text_kv.get();
    CrossAttentionBlock cross = loader.cross_attention(layer, i);
    cross.kv = p.sound_kv.get();
    cross.keeps = std::ranges::find(alignment_, i, &SpeechHead::layer) != alignment_.end();
    p.decoder.blocks.emplace_back(std::move(attention));
    p.decoder.blocks.emplace_back(std::move(cross));
    p.decoder.blocks.emplace_back(loader.feed_forward(layer));
  }
  p.decoder.blocks.emplace_back(
      HeadBlock{.norm = loader.norm("model.decoder.layer_norm"), .output = embedding.table, .n_vocab = c.n_vocab});
  p.kept = loader.take_kept();
}

void SpeechNet::allocate() {
  const SpeechConfig& c = config_;
  Parts& p = *parts_;
  const int n_rows = c.n_rows * room_.heard,
            most_logits = std::max({2 * room_.heard, room_.texts, static_cast<int>(kSpeechDraft)});
  const StepLimits of_encoder =
      p.encoder.place(*p.backend, {.max_tokens = n_rows, .max_seqs = room_.heard, .max_kv_len = c.n_rows});
  StepLimits of_decoder = p.decoder.place(*p.backend, {.max_tokens = std::max(c.n_ctx * room_.heard, room_.texts),
                                                       .max_seqs = room_.texts,
                                                       .max_logits = most_logits,
                                                       .max_kv_len = std::max(c.n_ctx, c.n_rows),
                                                       .n_vocab = c.n_vocab,
                                                       .n_tables = 2,
                                                       .max_source_rows = n_rows});
  // Products with the rows of sources have as many rows as the encoder's.
  p.backend->reserve(largest(of_encoder, of_decoder));
  p.backend->prepare_program(p.encoder);
  p.backend->prepare_program(p.decoder);
  const int of_window = c.n_rows * c.dim + c.n_frames() * c.n_mels;
  p.host.emplace(*p.backend, static_cast<size_t>(room_.windows) * static_cast<size_t>(of_window));
  p.logits = p.backend->host_floats(static_cast<size_t>(most_logits) * static_cast<size_t>(c.n_vocab));
}

std::shared_ptr<float[]> SpeechNet::host_floats(size_t n) { return parts_->host->take(n); }

SharedFloats SpeechNet::encode(std::span<const float> features) {
  Parts& p = *parts_;
  const SoundBatch sounds(sizes_of(config_), features);
  CHECK_LE(sounds.n_windows(), room_.heard);
  p.backend->run(p.encoder, sounds.batch());
  const size_t size = static_cast<size_t>(sounds.n_tokens()) * static_cast<size_t>(config_.dim);
  const std::shared_ptr<float[]> sound = host_floats(size);
  p.backend->download(sound.get(), p.encoder.output(sounds.n_tokens(), sounds.n_windows(), 0));
  return {sound, size};
}

int32_t SpeechNet::take_block() {
  const auto free = std::ranges::find(parts_->holders, 0);
  CHECK(free != parts_->holders.end());  // there are enough blocks for all texts
  *free = 1;
  return static_cast<int32_t>(free - parts_->holders.begin());
}

void SpeechNet::release_from(int text, size_t block) {
  std::vector<int32_t>& own = parts_->text_blocks[static_cast<size_t>(text)];
  for (; own.size() > block; own.pop_back()) --parts_->holders[static_cast<size_t>(own.back())];
}

// Gives a text blocks for n tokens from `position` on. Tokens from there on are forgotten.
void SpeechNet::make_room(int text, int position, int n) {
  CHECK(text >= 0 && text < room_.texts);
  std::vector<int32_t>& own = parts_->text_blocks[static_cast<size_t>(text)];
  CHECK_LE(blocks_for(position), static_cast<int>(own.size()));
  release_from(text, static_cast<size_t>(blocks_for(position)));
  CHECK(position % kSpeechBlockSize == 0 || parts_->holders[static_cast<size_t>(own.back())] == 1);
  while (static_cast<int>(own.size()) < blocks_for(position + n)) own.push_back(take_block());
}

void SpeechNet::fork(int to, int from, int n) {
  CHECK(to != from && to >= 0 && to < room_.texts);
  release_from(to, 0);
  const std::vector<int32_t>& shared = parts_->text_blocks[static_cast<size_t>(from)];
  CHECK_LE(blocks_for(n), static_cast<int>(shared.size()));
  std::vector<int32_t>& own = parts_->text_blocks[static_cast<size_t>(to)];
  own.assign(shared.begin(), shared.begin() + n / kSpeechBlockSize);
  for (const int32_t block : own) ++parts_->holders[static_cast<size_t>(block)];
  if (n % kSpeechBlockSize == 0) return;
  own.push_back(take_block());
  parts_->text_kv->copy_block(shared[own.size() - 1], own.back());
}

// The sounds of the steps, one after another: where they are, or copied to `copy`.
static std::span<const float> joined_sounds(std::span<const SpeechStep> steps, std::vector<float>& copy) {
  std::span<const float> all;
  bool is_joined = true;
  for (const SpeechStep& step : steps) {
    if (step.sound.empty()) continue;
    is_joined = is_joined && (all.empty() || all.data() + all.size() == step.sound.data());
    all = all.empty() ? step.sound : std::span(all.data(), all.size() + step.sound.size());
  }
  if (is_joined) return all;
  for (const SpeechStep& step : steps) copy.insert(copy.end(), step.sound.begin(), step.sound.end());
  return copy;
}

std::span<float> SpeechNet::decode(std::span<const SpeechStep> steps) {
  const SpeechConfig& c = config_;
  Parts& p = *parts_;
  CHECK(!steps.empty() && static_cast<int>(steps.size()) <= room_.texts);
  const int sound_blocks = blocks_for(c.n_rows), max_blocks = std::max(blocks_for(c.n_ctx), sound_blocks);
  std::vector<int32_t> tokens, positions, starts = {0}, lengths, blocks, rows, source_start = {0};
  std::vector<int32_t> source_len;
  std::vector<float> copied;
  for (const SpeechStep& step : steps) {
    const auto n = static_cast<int>(step.tokens.size());
    CHECK(n >= 1 && step.position + n <= c.n_ctx && step.window >= 0 && step.window < room_.windows);
    make_room(step.text, step.position, n);
    for (const int row : step.logit_rows) rows.push_back(starts.back() + row);
    for (int i = 0; i < n; ++i) positions.push_back(step.position + i);
    tokens.insert(tokens.end(), step.tokens.begin(), step.tokens.end());
    starts.push_back(starts.back() + n);
    lengths.push_back(step.position + n);
    const std::vector<int32_t>& own = p.text_blocks[static_cast<size_t>(step.text)];
    blocks.insert(blocks.end(), own.begin(), own.end());
    blocks.resize(blocks.size() + static_cast<size_t>(max_blocks) - own.size(), -1);
    const auto n_rows = static_cast<int32_t>(step.sound.size() / static_cast<size_t>(c.dim));
    CHECK_LE(n_rows, c.n_rows);
    int32_t& of_window = p.sound_rows[static_cast<size_t>(step.window)];
    if (n_rows > 0) of_window = n_rows;
    source_start.push_back(source_start.back() + n_rows);
    source_len.push_back(of_window);
  }
  for (const SpeechStep& step : steps)
    for (int b = 0; b < max_blocks; ++b) blocks.push_back(b < sound_blocks ? step.window * sound_blocks + b : -1);
  const Batch batch{.tokens = tokens,
                    .positions = positions,
                    .q_start = starts,
                    .kv_len = lengths,
                    .block_table = blocks,
                    .max_blocks = max_blocks,
                    .logit_rows = rows,
                    .sources = joined_sounds(steps, copied),
                    .source_start = source_start,
                    .source_len = source_len};
  p.backend->run(p.decoder, batch);
  if (!rows.empty())
    p.backend->download(p.logits.get(), p.decoder.output(static_cast<int>(tokens.size()), batch.n_seqs(),
                                                          static_cast<int>(rows.size())));
  return {p.logits.get(), rows.size() * static_cast<size_t>(c.n_vocab)};
}

std::vector<float> SpeechNet::align(std::span<const int32_t> tokens, std::span<const float> sound, int n_rows) {
  const SpeechStep step{.tokens = tokens, .sound = sound};
  decode({&step, 1});
  const int n_tokens = static_cast<int>(tokens.size()), head_dim = config_.dim / config_.n_decoder_heads;
  std::vector<float> shares;
  shares.reserve(alignment_.size() * tokens.size() * static_cast<size_t>(n_rows));
  std::vector<float> q(tokens.size() * static_cast<size_t>(head_dim)), k(static_cast<size_t>(n_rows * head_dim)),
      scores(static_cast<size_t>(n_rows));
  for (const SpeechHead& head : alignment_) {
    const CrossAttentionBlock& block = cross_attention(head.layer);
    const int64_t column = int64_t{head.head} * head_dim;
    parts_->backend->download(q.data(), block.kept_q.slice_rows(0, n_tokens).slice_cols(column, head_dim));
    parts_->backend->download(k.data(), block.kept_k.slice_rows(0, n_rows).slice_cols(column, head_dim));
    for (int t = 0; t < n_tokens; ++t) {
      const float* query = q.data() + t * head_dim;
      for (int row = 0; row < n_rows; ++row)
        scores[static_cast<size_t>(row)] =
            std::inner_product(query, query + head_dim, k.data() + row * head_dim, 0.0f) * block.attention.scale;
      const float largest = *std::ranges::max_element(scores);
      float total = 0;
      for (float& x : scores) total += x = std::exp(x - largest);
      for (const float x : scores) shares.push_back(x / total);
    }
  }
  return shares;
}

}  // namespace ingot
