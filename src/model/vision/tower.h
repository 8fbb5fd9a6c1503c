// Tower: a vision tower on a backend of its own: weights, a program of the blocks that text models use, and a step for
// each picture.
//
// The rows of a step are the patches of a picture, in groups: the merge x merge patches that become one vector are
// neighbours, row by row of the group.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "backend/backend.h"
#include "model/vision/image_processor.h"
#include "model/vision/tower_config.h"

namespace ingot {

class Tower {
 public:
  // Throws Error naming a tensor that is missing or has another shape, and MemoryError if the tower does not fit.
  Tower(const TowerConfig& config, std::unique_ptr<WeightSource> source, const BackendOptions& backend);
  ~Tower();

  // The vectors of a tile, [tile.n_rows, out_dim]. Not to be called from two threads at once.
  std::vector<float> encode(const ImageTile& tile);
  const TowerConfig& config() const { return config_; }

 private:
  struct Parts;
  void load(WeightSource& source);
  void allocate(int max_patches);
  std::vector<float> patches_of(const ImageTile& tile) const;

  const TowerConfig config_;
  std::unique_ptr<WeightSource> source_;  // the backend may read its mapping
  std::unique_ptr<Parts> parts_;
};

// The places of the patches of a picture of rows x columns patches, in the order of a step: row * columns + column.
std::vector<int> patch_order(int rows, int columns, int merge);

}  // namespace ingot
