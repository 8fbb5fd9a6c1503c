// Tower: a vision tower on a backend of its own: weights, a program of the blocks that text models use, and steps. The
// rows of a step are the patches of a picture, in groups (WindowOrder). Tiles of one size that wait at the same time
// share a step: those of an image, and on a GPU also those of other threads. One of the threads runs it.
#pragma once
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "model/media/prepared.h"
#include "model/vision/tower_config.h"

namespace ingot {

class Tower {
 public:
  // Throws Error naming a tensor that is missing or has another shape, and MemoryError if the tower does not fit.
  // max_patches: of a picture.
  Tower(const TowerConfig& config, std::unique_ptr<WeightSource> source, const BackendOptions& backend,
        int max_patches);
  ~Tower();

  // The vectors of each tile, [tile.n_rows, config().row_dim()]: the projector's, then those of each deepstack layer.
  // Any thread may call it. Adds the tiles' share of the computing time to ms.
  std::vector<SharedFloats> encode(std::span<const ImageTile> tiles, double& ms);
  const TowerConfig& config() const { return config_; }

 private:
  struct Parts;
  struct Step;
  struct Job;
  void allocate(int max_patches, bool shares_steps);
  void warm_up(int max_patches);
  std::vector<Job*> next_jobs();
  void run(std::span<Job* const> jobs);
  Step step_of(std::span<Job* const> jobs, const WindowOrder& order) const;
  void mix_positions(int rows, int columns, Step& step) const;
  void run(Step& step);
  void read_outputs(std::span<Job* const> jobs, const WindowOrder& order) const;

  const TowerConfig config_;
  std::mutex mutex_;
  std::condition_variable is_free_;  // a step is complete
  std::deque<Job*> waiting_;
  bool is_busy_ = false;  // a thread runs a step
  std::unique_ptr<WeightSource> source_;  // the backend may read its mapping
  std::unique_ptr<Parts> parts_;
};

}  // namespace ingot
