#include "backend/host_pool.h"

#include <algorithm>

namespace ingot {

std::shared_ptr<float[]> HostPool::take(size_t n) {
  Piece piece;
  {
    const std::lock_guard lock(free_->mutex);
    const auto fits = [n](const Piece& p) { return p.n >= n && p.n / 2 <= n; };
    const auto found = std::ranges::find_if(free_->pieces, fits);
    if (found != free_->pieces.end()) {
      piece = std::move(*found);
      free_->pieces.erase(found);
      free_->n_floats -= piece.n;
    }
  }
  if (!piece.floats) piece = {backend_.host_floats(n), n};
  float* const floats = piece.floats.get();
  return {floats, [piece = std::move(piece), free = free_](float*) mutable { free->put(std::move(piece)); }};
}

void HostPool::Free::put(Piece piece) {
  std::vector<Piece> dropped;  // freed after the lock
  const std::lock_guard lock(mutex);
  if (piece.n > max_floats) return;
  n_floats += piece.n;
  pieces.push_back(std::move(piece));
  while (n_floats > max_floats) {
    n_floats -= pieces.front().n;
    dropped.push_back(std::move(pieces.front()));
    pieces.erase(pieces.begin());
  }
}

}  // namespace ingot
