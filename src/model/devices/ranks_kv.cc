// Copies of KV blocks, for files of cached prefixes and for beams.
#include <fmt/format.h>

#include "model/devices/ranks.h"

namespace ingot {

// The layouts of all parts of the caches, in order. With ranks, a device of rank 0 has only a part of each block.
std::string Ranks::kv_layout() const {
  if (communicator_) return "";
  std::string all;
  for (const auto& device : devices_)
    for (const auto& cache : device->kv) {
      if (cache == nullptr) continue;
      const KvShape& kv = cache->shape;
      all += fmt::format("{}device {}, {}, {} layers, {} heads of {}{}{}, blocks of {} tokens", all.empty() ? "" : "; ",
                         device->backend->name(), kv_type_name(kv.dtype), kv.n_layers, kv.n_kv_heads, kv.head_dim,
                         kv.values_are_keys ? " (latents)" : "", kv.key_rotation() > 1 ? " (rotated keys)" : "",
                         kv.block_size);
    }
  return all;
}

// Calls f(cache) for the part of a pool's cache on each device that has one, in order.
template <class F>
void Ranks::for_each_cache(int pool, F&& f) const {
  for (const auto& device : devices_)
    if (KvCache* cache = device->kv[static_cast<size_t>(pool)].get()) f(*cache);
}

size_t Ranks::kv_block_bytes(int pool) const {
  size_t bytes = 0;
  for_each_cache(pool, [&](const KvCache& cache) { bytes += cache.block_bytes(); });
  return bytes;
}

void Ranks::read_kv(int pool, int32_t block, std::span<uint8_t> to) {
  if (pipeline_) pipeline_->drain();
  for_each_cache(pool, [&](const KvCache& cache) {
    cache.read_block(block, to.first(cache.block_bytes()));
    to = to.subspan(cache.block_bytes());
  });
}

void Ranks::write_kv(int pool, int32_t block, std::span<const uint8_t> from) {
  if (pipeline_) pipeline_->drain();
  for_each_cache(pool, [&](KvCache& cache) {
    cache.write_block(block, from.first(cache.block_bytes()));
    from = from.subspan(cache.block_bytes());
  });
}

void Ranks::copy_kv(int pool, int32_t from, int32_t to) {
  if (pipeline_) pipeline_->drain();
  for_each_cache(pool, [&](KvCache& cache) { cache.copy_block(from, to); });
}

}  // namespace ingot
