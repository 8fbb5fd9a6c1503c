// The ops that are matmuls. They pack the activations once for each layout that the weights need, cut all panels into
// tasks, and run the tasks as one parallel loop.
#include <algorithm>
#include <array>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/isa.h"

namespace ingot {

using cpu::MatmulJob;
using cpu::PackedWeight;
using cpu::PanelRange;
using cpu::Unpacked;

namespace {

const PackedWeight& packed(const Weight& w) {
  CHECK(w.packed != nullptr);  // prepare() with kForMatmul
  return *static_cast<const PackedWeight*>(w.packed);
}

}  // namespace

const cpu::Kernels& CpuBackend::kernels_for(const PackedWeight& w, int64_t rows) const {
  return forced_kernels_ != nullptr ? *forced_kernels_ : *w.choice.for_rows[cpu::row_class(rows)];
}

std::vector<std::string> CpuBackend::matmul_kernels(const Weight& weight, int64_t rows) const {
  const PackedWeight& w = packed(weight);
  const cpu::Kernels& chosen = kernels_for(w, rows);
  std::vector<std::string> names{chosen.isa};
  if (measures_kernels_ && cpu::packs_alike(weight.format, packing_))
    for (const cpu::Kernels* kernels : cpu::measured_kernels())
      if (kernels != &chosen) names.emplace_back(kernels->isa);
  return names;
}

void CpuBackend::use_matmul_kernel(const std::string& kernel) {
  forced_kernels_ = kernel.empty() ? nullptr : &cpu::choose_kernels(kernel);
}

const uint8_t* CpuBackend::pack(Tensor x, const cpu::ActLayout& layout, int max_tile, const cpu::Kernels& kernels,
                                int slot) {
  const int64_t token_bytes = cpu::act_token_bytes(layout, x.cols);
  const size_t needed = static_cast<size_t>(x.rows * token_bytes);
  if (activations_[slot].size() < needed)
    activations_[slot] = cpu::Memory(needed);  // only if reserve() was not called
  uint8_t* to = activations_[slot].data();
  const cpu::Tiling tiling = cpu::make_tiling(static_cast<int>(x.rows), max_tile);
  for_rows(tiling.n_tiles, x.rows * x.cols, [&](int64_t tile, int) {
    const int begin = cpu::tile_begin(tiling, static_cast<int>(tile));
    const int end = cpu::tile_begin(tiling, static_cast<int>(tile) + 1);
    kernels.pack_activations(x.f32(begin), x.stride, end - begin, x.cols, layout, to + begin * token_bytes);
  });
  return to;
}

namespace {

// How a matmul is cut: its panels into ranges, its tiles of tokens into splits.
struct Cut {
  int64_t ranges, splits;
};

// kTasksPerThread tasks for each thread, but no task so small that starting the task costs more than running it. Cuts
// by panels first, and by tiles if there are too few panels. total: bytes of all matmuls that are cut together.
Cut cut_of(const MatmulJob& job, int64_t n_panels, int64_t total, int64_t n_threads) {
  constexpr int64_t kLeastWork = 16 * 1024;  // bytes of weights times tokens
  if (n_threads == 1) return {1, 1};
  const int64_t bytes = n_panels * job.panel_bytes, work = bytes * job.tiling.n_tokens;
  const int64_t share = (kTasksPerThread * bytes / total + 1) * n_threads;
  const int64_t wanted = std::clamp<int64_t>(work / kLeastWork, 1, share), ranges = std::min(wanted, n_panels);
  return {ranges, std::min<int64_t>((wanted + ranges - 1) / ranges, job.tiling.n_tiles)};
}

// A task that unpacks panels reads each tile of tokens once for kPanelsUnpacked panels, and each split of the tokens
// unpacks the panels again. So tasks are few and large: those that end first, in units of a tile times a panel. total:
// panels of all matmuls that are cut together.
Cut cut_of_unpacked(const MatmulJob& job, int64_t n_panels, int64_t total, int64_t n_threads) {
  constexpr double kReadTile = 1, kUnpackPanel = 4;  // measured: 4 of 16 tiles' time
  constexpr double kRest = 0.25;                     // of a task, while which other threads wait
  Cut best{1, 1};
  double least = 0;
  for (int64_t panels = std::min<int64_t>(cpu::kPanelsUnpacked, n_panels); panels > 0; --panels)
    for (int64_t splits = 1; splits <= job.tiling.n_tiles; splits *= 2) {
      const int64_t n_tasks = (total + panels - 1) / panels * splits;
      const auto rounds = static_cast<double>((n_tasks + n_threads - 1) / n_threads);
      const auto tiles = static_cast<double>((job.tiling.n_tiles + splits - 1) / splits),
                 n = static_cast<double>(panels);
      const double time = (rounds + kRest) * (n * tiles + kReadTile * tiles + kUnpackPanel * n);
      if (least > 0 && time >= least) continue;
      least = time;
      best = {(n_panels + panels - 1) / panels, splits};
    }
  return best;
}

}  // namespace

// A thread gets the same part of each matrix in every step, the part that it packed; or, if all panels are alike, with
// in_order neighbouring panels of all matrices, because the kernels prefetch the next panel.
void CpuBackend::plan_matmuls(std::span<const MatmulJob> jobs, std::span<const int64_t> n_panels, bool in_order) {
  const int64_t n_threads = pool_.size();
  matmul_tasks_.clear();
  int64_t total = 0, total_bytes = 0;
  for (size_t i = 0; i < jobs.size(); ++i) total += n_panels[i], total_bytes += n_panels[i] * jobs[i].panel_bytes;
  const auto cut = [&](size_t i, int64_t thread, int64_t n_parts) {
    const MatmulJob& job = jobs[i];
    const auto [ranges, splits] = job.unpacked == Unpacked::kBF16 ? cut_of_unpacked(job, n_panels[i], total, n_threads)
                                                                  : cut_of(job, n_panels[i], total_bytes, n_threads);
    for (int64_t r = thread * ranges / n_parts; r < (thread + 1) * ranges / n_parts; ++r) {
      for (int64_t s = 0; s < splits; ++s) {
        matmul_tasks_.push_back({static_cast<int>(i),
                                 {r * n_panels[i] / ranges, (r + 1) * n_panels[i] / ranges,
                                  static_cast<int>(s * job.tiling.n_tiles / splits),
                                  static_cast<int>((s + 1) * job.tiling.n_tiles / splits)}});
      }
    }
  };
  const int64_t n_parts = in_order ? 1 : n_threads;
  for (int64_t thread = 0; thread < n_parts; ++thread)
    for (size_t i = 0; i < jobs.size(); ++i) cut(i, thread, n_parts);
}

// For several long tiles of tokens, the kernel sums a product in parts of k, so the sums depend on the batch. In
// deterministic mode, such tiles run one at a time.
void CpuBackend::run_task(const MatmulJob& job, const PanelRange& range) {
  constexpr int64_t kLongTileBytes = 128 * 1024;  // less than the length from which the kernel sums in parts
  const int64_t tile_bytes = (job.tiling.n_tokens + job.tiling.n_tiles - 1) / job.tiling.n_tiles * job.act_token_bytes;
  const bool in_parts = tile_bytes >= kLongTileBytes && job.unpacked == Unpacked::kNo;
  if (!deterministic_ || !in_parts) return job.kernels->matmul(job, range);
  for (int tile = range.tile_begin; tile < range.tile_end; ++tile)
    job.kernels->matmul(job, {range.panel_begin, range.panel_end, tile, tile + 1});
}

// Whether the matmul has too few panels for many threads and is long enough to cut k as well. The sums of the parts
// differ in their last bits from those of a batch of several tiles.
bool CpuBackend::can_cut_k(const MatmulJob& job, int64_t n_panels) const {
  constexpr int64_t kLeastBytes = 64 * 1024;
  return !deterministic_ && n_panels <= kMostPanelsOfParts && job.tiling.n_tiles == 1 &&
         job.unpacked == Unpacked::kNo && job.n_in % kPartUnit == 0 && job.n_in > kPartUnit &&
         job.panel_bytes >= kLeastBytes;
}

// The parts are the same for any number of threads, and are added in order.
void CpuBackend::run_parts_of_k(const MatmulJob& job, int64_t n_panels) {
  const int64_t units = job.n_in / kPartUnit, n_parts = std::min(units, kMostPartsOfK);
  const int m = job.tiling.n_tokens;
  constexpr int64_t kTile = int64_t{cpu::kMaxTile} * cpu::kPanelRows;
  const Tensor sums = room(part_sums_, kMostPanelsOfParts * kMostPartsOfK, kTile);  // [panels, parts] of [m, 32 rows]
  pool_.parallel_for(n_panels * n_parts, [&](int64_t i, int) {
    const int64_t part = i % n_parts, begin = part * units / n_parts, n = (part + 1) * units / n_parts - begin;
    job.tiles[m - 1](job.panels + i / n_parts * job.panel_bytes + begin * (job.panel_bytes / units),
                     job.act + begin * m * (job.act_token_bytes / units), n * kPartUnit, job.codebook, sums.f32(i));
  });
  for (int64_t row = 0; row < job.n_out; ++row)
    for (int t = 0; t < m; ++t) {
      const float* part = sums.f32(row / cpu::kPanelRows * n_parts) + t * cpu::kPanelRows + row % cpu::kPanelRows;
      float sum = 0;
      for (int64_t i = 0; i < n_parts; ++i) sum += part[i * kTile];
      float& y = job.y[t * job.y_stride + row];
      y = sum * job.factor + (job.bias ? job.bias[row] : 0.0f) + (job.accumulate ? y : 0.0f);
    }
}

Unpacked CpuBackend::unpacked(const PackedWeight& w, int64_t n_rows) const {
  const cpu::Kernels& kernels = kernels_for(w, n_rows);
  return w.batch_changes_bits && deterministic_ ? exact_form(w, kernels, n_rows) : unpacked_for(w, kernels, n_rows);
}

void CpuBackend::run_matmuls(Tensor x, std::span<const Output> outputs, std::optional<Activation> gated) {
  if (x.rows == 0) return;
  std::array<MatmulJob, kMaxOutputs> jobs;
  std::array<int64_t, kMaxOutputs> n_panels{};
  std::array<const uint8_t*, kMaxOutputs> acts{};
  std::array<cpu::ActLayout, kMaxOutputs> layouts;
  const int n = static_cast<int>(outputs.size());
  for (int i = 0; i < n; ++i) {
    const Output& out = outputs[i];
    const PackedWeight& w = packed(*out.w);
    CHECK_EQ(x.cols, w.n_in);
    CHECK_EQ(out.y.cols, w.n_out);
    const cpu::Kernels& kernels = kernels_for(w, x.rows);
    const Unpacked how = unpacked(w, x.rows);
    layouts[i] = activations_of(w, how);
    for (int j = 0; j < i; ++j)
      if (jobs[j].kernels == &kernels && cpu::same(layouts[j], layouts[i])) acts[i] = acts[j];
    if (acts[i] == nullptr) acts[i] = pack(x, layouts[i], max_tile(w, kernels, how), kernels, i);
    jobs[i] = cpu::job_of(w, kernels, static_cast<int>(x.rows), acts[i], out.y, how);
    jobs[i].bias = out.bias ? out.bias.f32() : nullptr;
    jobs[i].accumulate = out.accumulate;
    n_panels[i] = w.n_panels;
  }
  if (outputs[0].cuts_k && can_cut_k(jobs[0], n_panels[0])) return run_parts_of_k(jobs[0], n_panels[0]);
  // Gate and up run together, panel by panel, so only the first matmul's panels become tasks.
  const size_t n_dealt = gated ? 1 : outputs.size();
  plan_matmuls({jobs.data(), n_dealt}, {n_panels.data(), n_dealt}, /*in_order=*/false);
  const auto run = [&](int64_t i, int) {
    const MatmulTask& task = matmul_tasks_[i];
    if (gated) {
      jobs[0].kernels->gate_up(jobs[0], jobs[1], static_cast<int>(*gated), task.range);
    } else {
      run_task(jobs[task.job], task.range);
    }
  };
  pool_.parallel_for(static_cast<int64_t>(matmul_tasks_.size()), run, /*equal_tasks=*/true);
}

void CpuBackend::matmul(Tensor y, Tensor x, const Weight& w, Tensor bias) {
  const Output output{y, &w, bias};
  run_matmuls(x, {&output, 1});
}

void CpuBackend::matmul_add(Tensor residual, Tensor x, const Weight& w, Tensor bias) {
  const Output output{residual, &w, bias, true};
  run_matmuls(x, {&output, 1});
}

// Whether one kernel can run the tiles of both weights for this number of rows. The weights need the same instruction
// set and tiles of the same size, and must stay packed.
bool CpuBackend::run_together(const PackedWeight& gate, const PackedWeight& up, int64_t n_rows) const {
  const Unpacked how = unpacked(gate, n_rows);
  return &kernels_for(gate, n_rows) == &kernels_for(up, n_rows) && (gate.kind >= 0) == (up.kind >= 0) &&
         how == unpacked(up, n_rows) && (how == Unpacked::kNo || how == Unpacked::kBlocks);
}

void CpuBackend::gate_up(const GateUpArgs& a) {
  const bool together = run_together(packed(*a.w_gate), packed(*a.w_up), a.x.rows);
  // Two outputs use two places for packed activations at most, so the last place is free for `up`.
  static_assert(kMaxOutputs > 2);
  const Tensor up = together ? a.y : room(activations_[kMaxOutputs - 1], a.y.rows, a.y.cols);
  const Output outputs[] = {{a.y, a.w_gate, a.b_gate}, {up, a.w_up, a.b_up}};
  run_matmuls(normed(a.x, a.normed, a.norm), outputs, together ? std::optional(a.act) : std::nullopt);
  if (!together) act_mul(a.y, a.y, up, a.act);
}

void CpuBackend::qkv(const QkvArgs& a) {
  if (a.heads_of_ranks != nullptr) return Backend::qkv(a);
  const Output outputs[] = {{a.q, a.wq, a.bq}, {a.k, a.wk, a.bk}, {a.v, a.wv, a.bv}};
  run_matmuls(normed(a.x, a.normed, a.norm), outputs);
  const int n_freq = a.rope.angles ? static_cast<int>(a.rope.angles.cols / 2) : 0;
  const int rotation = a.kv->shape.key_rotation();
  const auto finish = [&](float* heads, int n_heads, const NormArgs& norm, int64_t token) {
    const int64_t n_normed = norm.weight.cols;  // one head, or all heads
    for (int64_t at = 0; norm.weight && at < int64_t{n_heads} * a.head_dim; at += n_normed)
      kernels_.norm(heads + at, heads + at, n_normed, norm.weight.f32(), norm.bias ? norm.bias.f32() : nullptr,
                    norm.eps, norm.kind == NormKind::kLayer);
    if (n_freq > 0) {
      const float* angles = a.rope.angles.f32(token);
      kernels_.rope(heads, n_heads, a.head_dim, angles, angles + n_freq, n_freq,
                    a.rope.layout == RopeLayout::kInterleaved);
    }
    if (rotation > 1) kernels_.hadamard(heads, int64_t{n_heads} * a.head_dim, rotation);
  };
  for_rows(a.x.rows, a.x.rows * (a.q.cols + 2 * a.k.cols), [&](int64_t t, int) {
    finish(a.q.f32(t), a.n_heads, a.q_norm, t);
    finish(a.k.f32(t), a.n_kv_heads, a.k_norm, t);
    write_token(*a.kv, a.layer, t, a.k.f32(t), a.v.f32(t));
  });
}

}  // namespace ingot
