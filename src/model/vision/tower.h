// Tower: a vision tower on a backend of its own: weights, a program of the blocks that text models use, and a step for
// each picture. The rows of a step are the patches of a picture, in groups (WindowOrder).
#pragma once
#include <memory>
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

  // The vectors of a tile, [tile.n_rows, config().row_dim()]: the projector's, then those of each deepstack layer. Not
  // to be called from two threads at once.
  std::vector<float> encode(const ImageTile& tile);
  const TowerConfig& config() const { return config_; }

 private:
  struct Parts;
  struct Step;
  void allocate(int max_patches);
  std::vector<float> input_of(const ImageTile& tile, const std::vector<int>& order) const;
  void add_positions(std::vector<float>& input, int rows, int columns, const std::vector<int>& order) const;
  void run(Step& step);

  const TowerConfig config_;
  std::unique_ptr<WeightSource> source_;  // the backend may read its mapping
  std::unique_ptr<Parts> parts_;
};

}  // namespace ingot
