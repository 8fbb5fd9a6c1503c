// Memory, begin and sample of a step, and the ops that work row by row.
#include "backend/cpu/cpu_backend.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "backend/cpu/cpu_kv.h"
#include "backend/cpu/isa.h"
#include "backend/ref/ref_backend.h"
#include "backend/row_ops.h"
#include "base/cache_folder.h"
#include "base/error.h"
#include "base/numa.h"

namespace ingot {

CpuBackend::CpuBackend(const BackendOptions& options)
    : kernels_(cpu::choose_kernels(options.isa)),
      recurrence_(*kernels_.recurrence),
      packing_(options.small_weights ? cpu::Packing::kSmall : cpu::Packing::kFast),
      deterministic_(options.deterministic),
      measures_kernels_(options.isa.empty()),
      pool_(options.n_threads, start_std_thread, choose_nodes(options.numa)),
      chooses_threads_(options.n_threads == 0 && pool_.nodes().empty()) {}

std::unique_ptr<Backend> create_cpu_backend(const BackendOptions& options) {
  return std::make_unique<CpuBackend>(options);
}

std::string CpuBackend::description() const {
  const size_t n_nodes = pool_.nodes().size();
  return fmt::format("cpu: {} thread{}{}, {}", pool_.size(), pool_.size() == 1 ? "" : "s",
                     n_nodes == 0   ? ""
                     : n_nodes == 1 ? fmt::format(" on memory node {}", pool_.nodes()[0].id)
                                    : fmt::format(" on {} memory nodes", n_nodes),
                     kernels_.isa);
}

Tensor CpuBackend::alloc(DType dtype, int64_t rows, int64_t cols) {
  const size_t n_bytes = static_cast<size_t>(rows * cols) * dtype_bytes(dtype);
  buffers_.emplace_back(n_bytes);
  allocated_ += n_bytes;
  return {buffers_.back().data(), dtype, rows, cols, cols};
}

Weight CpuBackend::prepare(const Weight& host, unsigned use) {
  Weight weight = host;
  if (use & kForMatmul) {
    weights_.push_back(cpu::pack_weight(host, kernels_, pool_, packing_));
    if (measures_kernels_ && cpu::packs_alike(host.format, packing_))
      weights_.back().choice = cpu::fastest_kernels(host.format, packing_);
    allocated_ += weights_.back().memory.size();
    weight.packed = &weights_.back();
    if (!reads_codes(host.format, use)) weight.codes = nullptr;
  }
  return weight;
}

// Rows of an embedding that is also multiplied are read from the panels.
bool CpuBackend::reads_codes(Format format, unsigned use) const {
  if ((use & kForHostTable) != 0) return true;
  return (use & kForEmbedding) != 0 && !((use & kForMatmul) != 0 && cpu::packs_exactly(format));
}

size_t CpuBackend::packed_bytes(const Weight& shape, unsigned use) const {
  return use & kForMatmul ? cpu::packed_bytes(shape, packing_) : 0;
}

bool CpuBackend::save_memory() { return std::exchange(packing_, cpu::Packing::kSmall) != cpu::Packing::kSmall; }

size_t CpuBackend::kv_bytes(const KvShape& shape) const { return cpu::CpuKv::bytes_of(shape); }

std::unique_ptr<KvCache> CpuBackend::make_kv(const KvShape& shape) {
  auto kv = std::make_unique<cpu::CpuKv>(shape);
  cpu::place_in_turn(kv->memory, pool_.nodes());
  allocated_ += kv->memory.size();
  return kv;
}

namespace {

// Floats of one thread's scratch, rounded up to whole cache lines.
int64_t attention_stride(int head_dim) { return (cpu::attention_scratch_floats(head_dim) + 15) / 16 * 16; }

}  // namespace

CpuBackend::ScratchSizes CpuBackend::scratch_for(const StepLimits& limits) const {
  const int64_t rows = std::max({limits.max_tokens, limits.max_logits, 1}), row = std::max(limits.max_width, 1) + 64;
  const int64_t n_partials = int64_t{pool_.size()} * 16 * cpu::kMaxQueryRows;
  const auto bytes = [](int64_t n_floats) { return static_cast<size_t>(n_floats) * sizeof(float); };
  return {.activations = bytes(std::max(rows * row, limits.max_expert_floats)),
          .attention = bytes(pool_.size() * attention_stride(limits.head_dim)),
          .partials = bytes(n_partials * (2 + limits.head_dim)),
          .experts = limits.max_expert_rows > 0 ? bytes(limits.max_expert_floats) : 0};
}

size_t CpuBackend::scratch_bytes(const StepLimits& limits) const {
  const ScratchSizes s = scratch_for(limits);
  return kMaxOutputs * s.activations + s.attention + s.partials + 2 * s.experts;
}

void CpuBackend::reserve(const StepLimits& limits) {
  const auto take = [&](cpu::Memory& memory, size_t n_bytes) {
    allocated_ -= memory.size();
    memory = cpu::Memory(n_bytes);
    allocated_ += memory.size();
  };
  const ScratchSizes sizes = scratch_for(limits);
  for (cpu::Memory& memory : activations_) take(memory, sizes.activations);
  attention_scratch_stride_ = attention_stride(limits.head_dim);
  take(attention_scratch_, sizes.attention);
  take(partials_, sizes.partials);
  if (limits.max_expert_rows > 0) {
    const auto n = static_cast<size_t>(limits.max_expert_rows);
    for (cpu::Memory* memory : {&expert_in_, &expert_out_}) take(*memory, sizes.experts);
    for (auto* rows_of : {&order_, &place_}) rows_of->reserve(n);
    groups_.reserve(n);
    expert_jobs_.reserve(2 * n);
    expert_panels_.reserve(2 * n);
  }
  token_seq_.reserve(limits.max_tokens);
  matmul_tasks_.reserve(4096 + 2 * static_cast<size_t>(limits.max_expert_rows));
  attention_tasks_.reserve(static_cast<size_t>(limits.max_tokens + limits.max_seqs + pool_.size() * 16));
  sampler_scratch_.clear();
  for (int i = 0; i < std::min(pool_.size(), std::max(limits.max_logits, 1)); ++i)
    sampler_scratch_.emplace_back(limits.n_vocab);
}

void CpuBackend::upload(const Tensor& to, const void* from) { copy_rows_in(to, from); }
void CpuBackend::download(void* to, const Tensor& from) { copy_rows_out(to, from); }

void CpuBackend::begin(const Batch& batch) {
  Backend::begin(batch);
  token_seq_.resize(batch.tokens.size());
  for (int seq = 0; seq < batch.n_seqs(); ++seq) {
    for (int t = batch.q_start[seq]; t < batch.q_start[seq + 1]; ++t) {
      CHECK_EQ(batch.positions[t], batch.positions[batch.q_start[seq]] + t - batch.q_start[seq]);
      token_seq_[t] = seq;
    }
  }
}

// Tasks are cut for all threads of the pool, whatever number is in use, so the bits of a step do not depend on it.
void CpuBackend::run(const Program& program, const Batch& step) {
  if (!chooses_threads_) return Backend::run(program, step);
  if (!step_threads_) {  // all weights are there now
    const std::string cache = cache_home();
    step_threads_.emplace(pool_.size(), cache.empty() ? "" : cache + "/threads",
                          fmt::format("{}, {}; {} CPUs; {} matrices, {} bytes", processor_name(), kernels_.isa,
                                      available_cpus(), weights_.size(), packed_weight_bytes()));
  }
  const int n_tokens = step.n_tokens();
  pool_.use(step_threads_->n_threads(&program, n_tokens));
  const auto start = std::chrono::steady_clock::now();
  Backend::run(program, step);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  step_threads_->add(&program, n_tokens, seconds.count());
}

size_t CpuBackend::packed_weight_bytes() const {
  size_t n_bytes = 0;
  for (const cpu::PackedWeight& weight : weights_) n_bytes += weight.memory.size();
  return n_bytes;
}

void CpuBackend::sample(const Tensor& logits, std::span<const SampleRow> rows) {
  const auto n_rows = static_cast<int64_t>(rows.size()), n_vocab = logits.cols;
  while (sampler_scratch_.empty()) sampler_scratch_.emplace_back(static_cast<int>(n_vocab));
  const auto n_scratch = static_cast<int64_t>(sampler_scratch_.size());
  std::vector<Sampled>& sampled = drawn_rows();
  sampled.assign(rows.size(), {});
  const int64_t n_tasks = std::min(n_scratch, n_rows);
  pool_.parallel_for(n_tasks, [&](int64_t task, int) {
    for (int64_t i = task; i < n_rows; i += n_tasks)
      sampled[i] = draw_row({logits.f32(i), static_cast<size_t>(n_vocab)}, rows[i], sampler_scratch_[task]);
  });
}

void CpuBackend::embed(Tensor x, const Weight& table, float scale) {
  for_rows(x.rows, x.rows * x.cols, [&](int64_t t, int) {
    CHECK_GE(batch().tokens[t], 0);
    const int32_t row = table_row(batch().tokens[t], table);
    if (table.codes != nullptr) {
      decode_row(table.format, table.row(row), x.f32(t), x.cols);
    } else {
      cpu::read_packed_row(*static_cast<const cpu::PackedWeight*>(table.packed), table.format, row, x.f32(t));
    }
    if (scale != 1.0f) kernels_.scale(x.f32(t), x.cols, scale, 0.0f);
  });
}

void CpuBackend::norm(Tensor y, Tensor x, const NormArgs& a) {
  const float *weight = a.weight ? a.weight.f32() : nullptr, *bias = a.bias ? a.bias.f32() : nullptr;
  for_rows(x.rows, x.rows * x.cols, [&](int64_t t, int) {
    kernels_.norm(y.f32(t), x.f32(t), x.cols, weight, bias, a.eps, a.kind == NormKind::kLayer);
  });
}

void CpuBackend::add_normed(Tensor x, Tensor y, const NormArgs& a, float factor) {
  const float *weight = a.weight ? a.weight.f32() : nullptr, *bias = a.bias ? a.bias.f32() : nullptr;
  for_rows(x.rows, 2 * x.rows * x.cols, [&](int64_t t, int) {
    kernels_.norm(y.f32(t), y.f32(t), x.cols, weight, bias, a.eps, a.kind == NormKind::kLayer);
    kernels_.add(x.f32(t), y.f32(t), x.cols);
    if (factor != 1) scale_row(x.f32(t), x.cols, factor);
  });
}

void CpuBackend::scale_by_position(Tensor x, const PositionScale& args) {
  for_rows(x.rows, x.rows * x.cols, [&](int64_t t, int) {
    scale_row(x.f32(t), x.cols, position_factor(args, batch().positions[t]));
  });
}

void CpuBackend::scale_groups(Tensor x, Tensor factors, GroupFactor kind) {
  for_rows(x.rows, x.rows * x.cols, [&](int64_t t, int) {
    scale_groups_of_row(x.f32(t), x.cols, factors.f32(factors.rows > 1 ? t : 0), factors.cols, kind);
  });
}

void CpuBackend::match_size(Tensor y, Tensor x) {
  for_rows(y.rows, 4 * y.rows * y.cols,
           [&](int64_t t, int) { match_size_of_row(y.f32(t), x.f32(t * x.rows / y.rows), y.cols); });
}

void CpuBackend::mix_streams(Tensor x, Tensor streams, Tensor coefs) {
  const int64_t m = streams.cols / x.cols + 1;
  for_rows(x.rows, m * m * x.rows * x.cols,
           [&](int64_t t, int) { mix_streams_of_row(x.f32(t), streams.f32(t), coefs.f32(t), m, x.cols); });
}

void CpuBackend::correct_streams(Tensor x, Tensor predicted, Tensor streams, Tensor coefs) {
  const int64_t m = streams.cols / x.cols + 1;
  for_rows(x.rows, m * x.rows * x.cols, [&](int64_t t, int) {
    correct_streams_of_row(x.f32(t), predicted.f32(t), streams.f32(t), coefs.f32(t), m, x.cols);
  });
}

void CpuBackend::keep_above(Tensor x, float deviations) {
  for_rows(x.rows, 4 * x.rows * x.cols, [&](int64_t t, int) { keep_above_row(x.f32(t), x.cols, deviations); });
}

void CpuBackend::xielu(Tensor x, const Xielu& args) {
  for_rows(x.rows, 16 * x.rows * x.cols, [&](int64_t t, int) { xielu_row(x.f32(t), x.cols, args); });
}

void CpuBackend::add(Tensor x, Tensor y) {
  for_rows(x.rows, x.rows * x.cols, [&](int64_t t, int) { kernels_.add(x.f32(t), y.f32(t), x.cols); });
}

void CpuBackend::act_mul(Tensor y, Tensor gate, Tensor up, Activation act) {
  for_rows(y.rows, 4 * y.rows * y.cols,
           [&](int64_t t, int) { kernels_.act_mul(y.f32(t), gate.f32(t), up.f32(t), y.cols, static_cast<int>(act)); });
}

void CpuBackend::rope_angles(Tensor angles, Tensor inv_freq, float magnitude, Tensor axes) {
  const int64_t n_freq = inv_freq.cols;
  for_rows(angles.rows, 32 * angles.rows * n_freq, [&](int64_t t, int) {
    float *cosines = angles.f32(t), *sines = cosines + n_freq;
    for (int64_t i = 0; i < n_freq; ++i) {
      const int32_t position = axes ? batch().rope_position(axes.i32()[i], t) : batch().positions[t];
      const float angle = static_cast<float>(position) * inv_freq.f32()[i];
      cosines[i] = std::cos(angle) * magnitude;
      sines[i] = std::sin(angle) * magnitude;
    }
  });
}

void CpuBackend::rope(Tensor x, int n_heads, const RopeArgs& a) {
  const int n_freq = static_cast<int>(a.angles.cols / 2), head_dim = static_cast<int>(x.cols / n_heads);
  for_rows(x.rows, x.rows * x.cols, [&](int64_t t, int) {
    const float* angles = a.angles.f32(t);
    kernels_.rope(x.f32(t), n_heads, head_dim, angles, angles + n_freq, n_freq, a.layout == RopeLayout::kInterleaved);
  });
}

void CpuBackend::hadamard(Tensor x, int block) {
  for_rows(x.rows, 2 * x.rows * x.cols, [&](int64_t t, int) { kernels_.hadamard(x.f32(t), x.cols, block); });
}

void CpuBackend::act(Tensor x, Activation act, Tensor bias) {
  for_rows(x.rows, 4 * x.rows * x.cols, [&](int64_t t, int) {
    if (bias) kernels_.add(x.f32(t), bias.f32(), x.cols);
    kernels_.act(x.f32(t), x.cols, static_cast<int>(act));
  });
}

void CpuBackend::add_positions(Tensor x, Tensor table) {
  for_rows(x.rows, x.rows * x.cols, [&](int64_t t, int) {
    const int64_t row = table.rows == 1 ? 0 : batch().positions[t];
    CHECK_LT(row, table.rows);
    kernels_.add(x.f32(t), table.f32(row), x.cols);
  });
}

void CpuBackend::pool(Tensor y, Tensor x, Pooling pooling) {
  for_rows(y.rows, x.rows * x.cols, [&](int64_t seq, int) {
    const int begin = batch().q_start[seq], end = batch().q_start[seq + 1];
    const int first = pooling == Pooling::kLast ? end - 1 : begin;
    std::memcpy(y.f32(seq), x.f32(first), static_cast<size_t>(x.cols) * sizeof(float));
    if (pooling != Pooling::kMean) return;
    for (int t = begin + 1; t < end; ++t) kernels_.add(y.f32(seq), x.f32(t), x.cols);
    kernels_.scale(y.f32(seq), x.cols, 1.0f / static_cast<float>(end - begin), 0.0f);
  });
}

void CpuBackend::copy(Tensor y, Tensor x) {
  for_rows(x.rows, x.rows * x.cols,
           [&](int64_t t, int) { std::memcpy(y.f32(t), x.f32(t), static_cast<size_t>(x.cols) * sizeof(float)); });
}

void CpuBackend::scale(Tensor x, float factor, float softcap) {
  const int64_t cost = softcap > 0 ? 4 : 1;
  constexpr int64_t kPiece = 16384;  // there are few rows of logits, and they are long
  const int64_t pieces = (x.cols + kPiece - 1) / kPiece;
  for_rows(x.rows * pieces, cost * x.rows * x.cols, [&](int64_t i, int) {
    const int64_t begin = i % pieces * kPiece;
    kernels_.scale(x.f32(i / pieces) + begin, std::min(kPiece, x.cols - begin), factor, softcap);
  });
}

}  // namespace ingot
