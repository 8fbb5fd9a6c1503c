#include "server/models/slots.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "engine/engine.h"
#include "io/prefix_file.h"
#include "server/requests/http.h"

namespace ingot {
namespace {

size_t n_common(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

void check_fits(const PrefixFile& file, const SlotFiles& files, const PrefixLayout& layout, const std::string& name) {
  const auto refuse = [&](const std::string& why) {
    throw ApiError(400, fmt::format("{} {}", printable(name, 128), why), "filename");
  };
  if (file.model != files.model) refuse("was saved from another model");
  const bool has_same_blocks = std::ranges::equal(file.caches, layout.pools, {}, &PrefixFile::Cache::block_bytes,
                                                  [](const auto& pool) { return uint64_t{pool.block_bytes}; });
  if (file.layout != layout.name || file.block_tokens != static_cast<uint32_t>(layout.block_tokens) || !has_same_blocks)
    refuse(fmt::format("was saved from a KV cache of another layout ({}; here: {})", printable(file.layout, 256),
                       layout.name));
  if (std::ranges::any_of(file.tokens, [&](int32_t token) { return token >= layout.n_vocab; }))
    refuse("has tokens that the model does not have");
  if (file.tokens.size() > static_cast<size_t>(layout.pools[0].n_blocks) * layout.block_tokens)
    refuse(fmt::format("has {} tokens, more than the KV cache holds", file.tokens.size()));
}

// Drops the blocks at the end of a copy.
class HeldPrefix {
 public:
  HeldPrefix(Engine& engine, std::shared_ptr<HeldBlocks> held) : engine_(engine), held_(std::move(held)) {}
  ~HeldPrefix() { engine_.drop_prefix(held_); }
  HeldPrefix(const HeldPrefix&) = delete;
  HeldPrefix& operator=(const HeldPrefix&) = delete;

 private:
  Engine& engine_;
  const std::shared_ptr<HeldBlocks> held_;
};

}  // namespace

int Slots::choose(const std::vector<int32_t>& prompt) {
  std::lock_guard lock(mutex_);
  size_t best = 0;
  std::tuple<bool, size_t, uint64_t> best_rank;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const std::vector<int32_t>& tokens = slots_[i].history.tokens;
    const size_t n = n_common(tokens, prompt);
    const std::tuple rank(slots_[i].n_running == 0, 2 * n > tokens.size() ? n : 0, n_uses_ - slots_[i].used_at);
    if (i > 0 && rank <= best_rank) continue;
    best = i;
    best_rank = rank;
  }
  slots_[best].used_at = ++n_uses_;
  return static_cast<int>(best);
}

void Slots::begin(int slot) {
  std::lock_guard lock(mutex_);
  ++slots_[static_cast<size_t>(slot)].n_running;
  slots_[static_cast<size_t>(slot)].used_at = ++n_uses_;
}

void Slots::end(int slot, History history) {
  std::lock_guard lock(mutex_);
  --slots_[static_cast<size_t>(slot)].n_running;
  slots_[static_cast<size_t>(slot)].history = std::move(history);
}

void Slots::set(int slot, History history) {
  std::lock_guard lock(mutex_);
  slots_[static_cast<size_t>(slot)].history = std::move(history);
}

Slots::History Slots::history(int slot) const {
  std::lock_guard lock(mutex_);
  return slots_[static_cast<size_t>(slot)].history;
}

std::vector<bool> Slots::busy() const {
  std::lock_guard lock(mutex_);
  std::vector<bool> busy;
  for (const Slot& slot : slots_) busy.push_back(slot.n_running > 0);
  return busy;
}

SlotCopy save_slot(Engine& engine, Slots& slots, int slot, const SlotFiles& files, const std::string& name) {
  Slots::History history = slots.history(slot);
  const CachedPrefix saved = engine.find_prefix(history.root, std::move(history.tokens)).get();
  const HeldPrefix hold(engine, saved.held);
  const PrefixLayout layout = engine.prefix_layout();
  PrefixFile head{.model = files.model,
                  .layout = layout.name,
                  .salt = {saved.root.hash, saved.root.id},
                  .block_tokens = static_cast<uint32_t>(layout.block_tokens),
                  .caches = {},
                  .tokens = saved.tokens};
  for (size_t i = 0; i < saved.pools.size(); ++i)
    head.caches.push_back(
        {.block_bytes = layout.pools[i].block_bytes, .n_missing = static_cast<uint32_t>(saved.pools[i].n_missing)});
  PrefixFileWriter file(files.folder + "/" + name, head);
  std::vector<uint8_t> piece;
  for (size_t i = 0; i < saved.pools.size(); ++i) {
    const size_t size = layout.pools[i].block_bytes;
    for (int first = 0, n; first < saved.pools[i].n_full; first += n) {
      n = std::min(blocks_of_piece(size), saved.pools[i].n_full - first);
      piece.resize(static_cast<size_t>(n) * size);
      engine.read_prefix(saved, static_cast<int>(i), first, piece).get();
      file.write(piece);
    }
    file.write(saved.pools[i].tail);
  }
  return {saved.tokens.size(), file.commit()};
}

SlotCopy restore_slot(Engine& engine, Slots& slots, int slot, const SlotFiles& files, const std::string& name) {
  const PrefixLayout layout = engine.prefix_layout();
  const MappedFile bytes(files.folder + "/" + name);
  PrefixFile file = parse_prefix_file(bytes.bytes(), name);
  check_fits(file, files, layout, name);
  const CacheKey root{file.salt[0], file.salt[1]};
  std::vector<int> n_missing;
  for (const PrefixFile::Cache& cache : file.caches) n_missing.push_back(static_cast<int>(cache.n_missing));
  const auto held = engine.hold_prefix(root, file.tokens, std::move(n_missing)).get();
  const HeldPrefix hold(engine, held);
  for (size_t i = 0; i < file.caches.size(); ++i) {
    const size_t size = layout.pools[i].block_bytes, n_blocks = file.caches[i].blocks.size() / size;
    for (size_t first = 0, n; first < n_blocks; first += n) {
      n = std::min<size_t>(static_cast<size_t>(blocks_of_piece(size)), n_blocks - first);
      const auto piece = file.caches[i].blocks.subspan(first * size, n * size);
      engine.write_prefix(held, static_cast<int>(i), static_cast<int>(first), piece).get();
    }
  }
  engine.keep_prefix(held).get();
  const SlotCopy copy{file.tokens.size(), bytes.bytes().size()};
  slots.set(slot, {root, std::move(file.tokens)});
  return copy;
}

size_t erase_slot(Engine& engine, Slots& slots, int slot) {
  Slots::History history = slots.history(slot);
  const size_t n_tokens = history.tokens.size();
  engine.erase_prefix(history.root, std::move(history.tokens)).get();
  slots.set(slot, {});
  return n_tokens;
}

}  // namespace ingot
