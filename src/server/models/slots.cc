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

constexpr size_t kMaxHeadBytes = 4096;  // of a file, without its tokens and blocks

size_t n_common(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

void check_fits(const PrefixFile& file, const SlotFiles& files, const PrefixLayout& layout, const std::string& name) {
  const auto refuse = [&](const std::string& why) {
    throw ApiError(400, fmt::format("{} {}", printable(name, 128), why), "filename");
  };
  if (file.model != files.model) refuse("was saved from another model");
  const bool has_same_blocks =
      std::ranges::equal(file.caches, layout.pools, {}, &PrefixFile::Cache::block_bytes, [](const auto& pool) {
        return uint64_t{pool.block_bytes};
      });
  if (file.layout != layout.name || file.block_tokens != static_cast<uint32_t>(layout.block_tokens) || !has_same_blocks)
    refuse(fmt::format("was saved from a KV cache of another layout ({}; here: {})", printable(file.layout, 256),
                       layout.name));
  if (std::ranges::any_of(file.tokens, [&](int32_t token) { return token >= layout.n_vocab; }))
    refuse("has tokens that the model does not have");
}

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
  const SavedPrefix saved = engine.save_prefix(history.root, std::move(history.tokens)).get();
  const PrefixLayout layout = engine.prefix_layout();
  PrefixFile file{.model = files.model,
                  .layout = layout.name,
                  .salt = {saved.root.hash, saved.root.id},
                  .block_tokens = static_cast<uint32_t>(layout.block_tokens),
                  .caches = {},
                  .tokens = saved.tokens};
  for (size_t i = 0; i < saved.pools.size(); ++i)
    file.caches.push_back({.block_bytes = layout.pools[i].block_bytes,
                           .n_missing = static_cast<uint32_t>(saved.pools[i].n_missing),
                           .blocks = saved.pools[i].blocks});
  return {saved.tokens.size(), write_prefix_file(files.folder + "/" + name, file)};
}

SlotCopy restore_slot(Engine& engine, Slots& slots, int slot, const SlotFiles& files, const std::string& name) {
  const PrefixLayout layout = engine.prefix_layout();
  const size_t n_tokens = static_cast<size_t>(layout.pools[0].n_blocks) * layout.block_tokens;
  size_t most = kMaxHeadBytes + n_tokens * sizeof(int32_t);
  for (const PrefixLayout::OfPool& pool : layout.pools) most += static_cast<size_t>(pool.n_blocks) * pool.block_bytes;
  const std::string text = read_file(files.folder + "/" + name, most);
  PrefixFile file = parse_prefix_file({reinterpret_cast<const uint8_t*>(text.data()), text.size()}, name);
  check_fits(file, files, layout, name);
  const CacheKey root{file.salt[0], file.salt[1]};
  PrefixView view{root, file.tokens, {}};
  for (const PrefixFile::Cache& cache : file.caches)
    view.pools.push_back({static_cast<int>(cache.n_missing), cache.blocks});
  engine.restore_prefix(view).get();
  const SlotCopy copy{file.tokens.size(), text.size()};
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
