// Tower: a vision tower on a backend of its own: weights, a program of the blocks that text models use, and a step for
// each picture. The rows of a step are the patches of a picture, in groups (WindowOrder).
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "backend/backend.h"
#include "model/vision/prepared_image.h"
#include "model/vision/tower_config.h"

namespace ingot {

class Tower {
 public:
  // Throws Error naming a tensor that is missing or has another shape, and MemoryError if the tower does not fit.
  // max_patches: of a picture.
  Tower(const TowerConfig& config, std::unique_ptr<WeightSource> source, const BackendOptions& backend,
        int max_patches);
  ~Tower();

  // The vectors of a tile, [tile.n_rows, config().row_dim()]: the projector's, then those of each deepstack layer. Any
  // thread may call it; the tower computes one tile at a time. Adds the time that it computes to ms.
  std::vector<float> encode(const ImageTile& tile, double& ms);
  const TowerConfig& config() const { return config_; }

 private:
  struct Parts;
  struct Step;
  void allocate(int max_patches);
  void warm_up(int max_patches);
  Step step_of(const ImageTile& tile, const WindowOrder& order) const;
  void mix_positions(int rows, int columns, Step& step) const;
  std::vector<float> outputs(int n_rows, const WindowOrder& order) const;
  void run(Step& step);

  const TowerConfig config_;
  std::mutex mutex_;  // of the backend
  std::unique_ptr<WeightSource> source_;  // the backend may read its mapping
  std::unique_ptr<Parts> parts_;
};

}  // namespace ingot
