#include "model/vision/tower.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "backend/device_name.h"
#include "backend/host_pool.h"
#include "base/error.h"
#include "base/memory_error.h"
#include "base/system.h"
#include "model/vision/tower_blocks.h"

namespace ingot {
namespace {

constexpr int kTowerBlockSize = 16;           // tokens of a KV block
constexpr int kSharedPatches = 8192;          // of a step for several tiles
constexpr int kFewestSharedPatches = 64;      // of a tile that shares a step
constexpr size_t kFreeFloats = size_t{16} << 20;  // kept for the next vectors
constexpr int kRowAxis = 1, kColumnAxis = 2;  // of ropes

}  // namespace

struct Tower::Parts {
  std::unique_ptr<Backend> backend;
  std::optional<HostPool> host;  // of vectors
  TowerBlocks blocks;
  std::unique_ptr<KvCache> kv;
  Program program;
  std::vector<int> layer_blocks;  // [n_layers]: the first block of each layer in the program
  PictureInput picture;  // of the step
  int max_patches = 0;   // of a step
  int max_seqs = 1;
  bool shares_steps = false;
};

// A tile that waits for its vectors.
struct Tower::Job {
  const ImageTile* tile = nullptr;
  SharedFloats vectors;
  std::exception_ptr fault;
  double ms = 0;
  bool is_done = false;
};

// The arrays that the batches of a step refer to. The patches of each window are neighbours. Layers see the picture
// whole, or as a sequence for each window.
struct Tower::Step {
  std::vector<int32_t> tokens, places, rope_positions, mixed_rows;
  std::vector<float> factors;
  std::vector<uint8_t> rgb;  // of several tiles, one below the other
  struct Sequences {
    std::vector<int32_t> positions, starts = {0}, lengths, blocks;
    int max_blocks = 0;
  };
  Sequences whole, windows;

  static Sequences cut(const std::vector<int>& lengths) {
    Sequences s;
    for (const int length : lengths) s.max_blocks = std::max(s.max_blocks, (length - 1) / kTowerBlockSize + 1);
    int32_t next_block = 0;
    for (const int length : lengths) {
      for (int i = 0; i < length; ++i) s.positions.push_back(i);
      s.starts.push_back(s.starts.back() + length);
      s.lengths.push_back(length);
      for (int b = 0; b < s.max_blocks; ++b) s.blocks.push_back(b * kTowerBlockSize < length ? next_block++ : -1);
    }
    return s;
  }

  Batch batch(const Sequences& s) const {
    return {.tokens = tokens,
            .positions = s.positions,
            .q_start = s.starts,
            .kv_len = s.lengths,
            .block_table = s.blocks,
            .max_blocks = s.max_blocks,
            .logit_rows = {},
            .rope_positions = rope_positions};
  }
};

Tower::Tower(const TowerConfig& config, std::unique_ptr<WeightSource> source, const BackendOptions& backend,
             int max_patches)
    : config_(config), source_(std::move(source)), parts_(std::make_unique<Parts>()) {
  parts_->backend = create_backend(backend);
  parts_->host.emplace(*parts_->backend, kFreeFloats);
  if (const size_t free = parts_->backend->available_bytes(), needed = source_->total_bytes(); needed > free)
    throw MemoryError(
        "the file of the vision tower has {}, but {} has only {} free: leave the tower out, or put it on "
        "another device",
        human_bytes(needed), backend.device, human_bytes(free));
  parts_->blocks = load_tower(config_, *source_, *parts_->backend);
  // The sums of a shared step may depend on its other tiles.
  allocate(max_patches, is_cuda(backend.device) && !backend.deterministic);
  if (is_cuda(backend.device)) warm_up(max_patches);
}

Tower::~Tower() = default;

// Builds the program for pictures of up to this many patches, or for several small ones.
void Tower::allocate(int max_patches, bool shares_steps) {
  Parts& p = *parts_;
  p.shares_steps = shares_steps;
  p.max_patches = shares_steps ? std::max(max_patches, kSharedPatches) : max_patches;
  p.max_seqs = config_.window > 0 ? p.max_patches / (config_.merge * config_.merge)
                                  : std::max(1, p.max_patches / kFewestSharedPatches);
  const DType type = p.backend->act_dtype() == DType::kF32 ? DType::kF32 : DType::kF16;
  p.kv = p.backend->make_kv({.n_layers = 1,
                             .n_kv_heads = config_.n_kv_heads,
                             .head_dim = p.blocks.head_dim,
                             .block_size = kTowerBlockSize,
                             .n_blocks = p.max_patches / kTowerBlockSize + p.max_seqs,
                             .dtype = type});
  p.program.dim = config_.dim;
  if (config_.family->has_rope) {
    // A quarter of a head's dimensions turn with the row, as many pairs with the column.
    const int n = config_.head_dim / 4;
    RopeTable rope{.rot_dim = config_.head_dim};
    const bool is_column_first = config_.family->is_gemma4;
    for (const int axis : {is_column_first ? kColumnAxis : kRowAxis, is_column_first ? kRowAxis : kColumnAxis})
      for (int i = 0; i < n; ++i) {
        rope.frequencies.push_back(1.0f / std::pow(config_.rope_theta, static_cast<float>(i) / static_cast<float>(n)));
        rope.axes.push_back(axis);
      }
    p.program.ropes.push_back(std::move(rope));
  }
  std::vector<Block>& blocks = p.program.blocks;
  p.blocks.patches.input = &p.picture;
  blocks.emplace_back(p.blocks.patches);
  for (int layer = 0; layer < config_.n_layers; ++layer) {
    p.layer_blocks.push_back(static_cast<int>(blocks.size()));
    const auto i = static_cast<size_t>(layer);
    if (config_.clips) {
      p.blocks.clipped_attention[i].kv = p.kv.get();
      blocks.emplace_back(p.blocks.clipped_attention[i]);
      blocks.emplace_back(p.blocks.clipped_feed_forward[i]);
    } else {
      p.blocks.attention[i].kv = p.kv.get();
      blocks.emplace_back(p.blocks.attention[i]);
      blocks.emplace_back(p.blocks.feed_forward[i]);
    }
    const auto found = std::ranges::find(config_.deepstack_layers, layer);
    if (found != config_.deepstack_layers.end())
      blocks.emplace_back(p.blocks.deepstack[static_cast<size_t>(found - config_.deepstack_layers.begin())]);
  }
  blocks.emplace_back(p.blocks.merge);
  p.program.allocate(*p.backend, {.max_tokens = p.max_patches, .max_seqs = p.max_seqs, .max_kv_len = max_patches});
}

// The rows of the table of positions that each patch adds, and their factors.
void Tower::mix_positions(int rows, int columns, Step& step) const {
  const int side = config_.side;
  const auto add = [&](int row, float factor) {
    step.mixed_rows.push_back(row);
    step.factors.push_back(factor);
  };
  if (config_.family->is_gemma4) {  // tables of columns and of rows
    for (const int place : step.places) add(place % columns, 1), add(side + place / columns % rows, 1);
    return;
  }
  // The table is stretched to the picture, its corners to the corners, and read by linear interpolation.
  const auto place_of = [&](int i, int n) {
    return static_cast<float>(i) * static_cast<float>(side - 1) / static_cast<float>(std::max(n - 1, 1));
  };
  for (const int place : step.places) {
    const float y = place_of(place / columns % rows, rows), x = place_of(place % columns, columns);
    const int top = static_cast<int>(y), left = static_cast<int>(x);
    const float below = y - static_cast<float>(top), right = x - static_cast<float>(left);
    const auto row_of = [&](int row, int column) { return std::min(row, side - 1) * side + std::min(column, side - 1); };
    add(row_of(top, left), (1 - below) * (1 - right)), add(row_of(top, left + 1), (1 - below) * right);
    add(row_of(top + 1, left), below * (1 - right)), add(row_of(top + 1, left + 1), below * right);
  }
}

// Runs the layers, each on the picture whole or on its windows.
void Tower::run(Step& step) {
  Parts& p = *parts_;
  const Batch whole = step.batch(step.whole);
  if (config_.window == 0) return p.backend->run(p.program, whole);
  const Batch windows = step.batch(step.windows);
  const int end = p.program.all().end;
  int first = 0;
  bool is_whole = true;
  p.backend->begin(whole);
  for (int layer = 0; layer <= config_.n_layers; ++layer) {
    const bool next_whole = layer == config_.n_layers || config_.is_whole(layer);
    const int at = layer < config_.n_layers ? p.layer_blocks[static_cast<size_t>(layer)] : end;
    if (next_whole == is_whole && layer < config_.n_layers) continue;
    p.backend->run_part(p.program, is_whole ? whole : windows, {first, at});
    first = at, is_whole = next_whole;
    if (first < end) p.backend->begin(is_whole ? whole : windows);
  }
}

// The first picture on a GPU would also wait for the libraries and for their choice of kernels.
void Tower::warm_up(int max_patches) {
  ImageTile tile{.width = config_.side * config_.patch, .height = config_.side * config_.patch};
  if (config_.is_dynamic()) {
    const int side = std::max(1, static_cast<int>(std::sqrt(std::min(max_patches, 4096))) / config_.merge);
    tile.width = tile.height = side * config_.merge * config_.patch;
  }
  const int side = tile.width / config_.patch / config_.merge;
  tile.n_rows = side * side;
  tile.rgb.resize((size_t{3} * static_cast<size_t>(tile.width) * static_cast<size_t>(tile.height) + 3) / 4 * 4);
  double ms = 0;
  encode({&tile, 1}, ms);
}

std::vector<SharedFloats> Tower::encode(std::span<const ImageTile> tiles, double& ms) {
  std::vector<Job> mine(tiles.size());
  for (size_t i = 0; i < tiles.size(); ++i) mine[i].tile = &tiles[i];
  std::unique_lock lock(mutex_);
  for (Job& job : mine) waiting_.push_back(&job);
  while (!std::ranges::all_of(mine, &Job::is_done)) {
    if (is_busy_) {
      is_free_.wait(lock);
      continue;
    }
    is_busy_ = true;
    const std::vector<Job*> jobs = next_jobs();
    lock.unlock();
    run(jobs);
    lock.lock();
    is_busy_ = false;
    for (Job* job : jobs) job->is_done = true;
    is_free_.notify_all();
  }
  lock.unlock();
  std::vector<SharedFloats> vectors;
  for (Job& job : mine) {
    if (job.fault) std::rethrow_exception(job.fault);
    ms += job.ms;
    vectors.push_back(std::move(job.vectors));
  }
  return vectors;
}

// Takes the first job, and the others of its size that fit in the step.
std::vector<Tower::Job*> Tower::next_jobs() {
  const ImageTile& first = *waiting_.front()->tile;
  const int n = first.height / config_.patch * (first.width / config_.patch);
  const int n_windows = config_.window > 0 ? n / (config_.merge * config_.merge) : 1;  // at most
  size_t n_most = 1;
  if (parts_->shares_steps && n >= kFewestSharedPatches)
    n_most = static_cast<size_t>(std::max(1, std::min(parts_->max_patches / n, parts_->max_seqs / n_windows)));
  std::vector<Job*> jobs;
  std::erase_if(waiting_, [&](Job* job) {
    const bool fits = jobs.size() < n_most && job->tile->width == first.width && job->tile->height == first.height;
    if (fits) jobs.push_back(job);
    return fits;
  });
  return jobs;
}

void Tower::run(std::span<Job* const> jobs) {
  try {
    const ImageTile& first = *jobs[0]->tile;
    const int rows = first.height / config_.patch, columns = first.width / config_.patch, n = rows * columns;
    CHECK(n > 0 && n * static_cast<int>(jobs.size()) <= parts_->max_patches);
    CHECK_EQ(n % (config_.merge * config_.merge), 0);
    const WindowOrder order = window_order(rows, columns, config_);
    const auto start = std::chrono::steady_clock::now();
    Step step = step_of(jobs, order);
    parts_->picture = {.rgb = jobs.size() > 1 ? step.rgb : first.rgb,
                       .values = first.values,
                       .places = step.places,
                       .rows = step.mixed_rows,
                       .factors = step.factors,
                       .width = first.width};
    run(step);
    read_outputs(jobs, order);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    for (Job* job : jobs) job->ms = took.count() / static_cast<double>(jobs.size());
  } catch (...) {
    for (Job* job : jobs) job->fault = std::current_exception();
  }
}

// Several tiles are as one picture, with a sequence for each.
Tower::Step Tower::step_of(std::span<Job* const> jobs, const WindowOrder& order) const {
  const ImageTile& first = *jobs[0]->tile;
  const int rows = first.height / config_.patch, columns = first.width / config_.patch, n = rows * columns;
  const size_t n_bytes = size_t{3} * static_cast<size_t>(first.width) * static_cast<size_t>(first.height);
  Step step;
  std::vector<int> pictures, windows;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const ImageTile& tile = *jobs[i]->tile;
    CHECK(tile.rgb.size() >= n_bytes);
    if (jobs.size() > 1) step.rgb.insert(step.rgb.end(), tile.rgb.begin(), tile.rgb.begin() + n_bytes);
    for (const int patch : order.patches) step.places.push_back(static_cast<int>(i) * n + patch);
    pictures.push_back(n);
    windows.insert(windows.end(), order.lengths.begin(), order.lengths.end());
  }
  step.rgb.resize((step.rgb.size() + 3) / 4 * 4);
  step.tokens.resize(step.places.size());
  step.whole = Step::cut(pictures);
  if (config_.window > 0) step.windows = Step::cut(windows);
  if (parts_->blocks.patches.table) mix_positions(rows, columns, step);
  if (!config_.family->has_rope) return step;
  const size_t n_all = step.places.size();
  step.rope_positions.resize(kRopeAxes * n_all);
  for (size_t i = 0; i < n_all; ++i) {
    const int place = step.places[i] % n;
    step.rope_positions[kRowAxis * n_all + i] = place / columns;
    step.rope_positions[kColumnAxis * n_all + i] = place % columns;
  }
  return step;
}

// The projector at the end comes first, then those of the deepstack layers.
void Tower::read_outputs(std::span<Job* const> jobs, const WindowOrder& order) const {
  const int row_dim = config_.row_dim(), dim = config_.out_dim, n_rows = jobs[0]->tile->n_rows;
  const bool is_in_order = std::ranges::is_sorted(order.groups) && row_dim == dim;
  const size_t n_floats = static_cast<size_t>(n_rows) * static_cast<size_t>(row_dim);
  const auto part = is_in_order ? nullptr : parts_->host->take(static_cast<size_t>(n_rows) * static_cast<size_t>(dim));
  for (size_t i = 0; i < jobs.size(); ++i) {
    const std::shared_ptr<float[]> vectors = parts_->host->take(n_floats);
    jobs[i]->vectors = {vectors, n_floats};
    int column = dim;
    for (Block& block : parts_->program.blocks) {
      const auto* merge = block.as<MergeBlock>();
      if (merge == nullptr) continue;
      const Tensor rows = merge->out.slice_rows(static_cast<int64_t>(i) * n_rows, n_rows);
      parts_->backend->download(is_in_order ? vectors.get() : part.get(), rows);
      if (is_in_order) continue;
      const bool is_last = &block == &parts_->program.blocks.back();
      for (int row = 0; row < n_rows; ++row)
        std::copy_n(part.get() + int64_t{row} * dim, dim,
                    vectors.get() + int64_t{order.groups[static_cast<size_t>(row)]} * row_dim + (is_last ? 0 : column));
      if (!is_last) column += dim;
    }
  }
}

}  // namespace ingot
