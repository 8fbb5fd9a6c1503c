// The ops of CudaBackend: each op chooses a kernel and passes its tensors. A product of a single row also computes the
// norm of its input, which saves a launch.
#include <algorithm>
#include <utility>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/draft_input.h"
#include "backend/cuda/matmul/qkv_end.h"

namespace ingot {

using cuda::check_launch;
using cuda::PackedWeight;

namespace {

cuda::DeviceKv view_of(const KvCache& kv) { return static_cast<const CudaKv&>(kv).view(); }

const float* data_of(const Tensor& bias) { return bias ? bias.f32() : nullptr; }

bool alike(const Weight& a, const Weight& b) { return cuda::share_matvec(packed(a), packed(b)); }

// The rows of n that are multiplied as 8-bit floats.
int64_t float8_group(int64_t n, bool whole_rows) { return whole_rows ? n : n - n % cuda::kFloat8Group; }

constexpr int64_t kMaxDeferred = 16384;  // most columns of a row whose norm a product computes

}  // namespace

Tensor CudaBackend::in_act_dtype(const Tensor& x) {
  if (x.dtype == act_) return x;
  const Tensor to{scratch_at_least(act_copy_, static_cast<size_t>(x.rows * x.cols) * dtype_bytes(act_)), act_, x.rows,
                  x.cols, x.cols};
  cuda::convert(to, x, device_);
  check_launch("convert");
  return to;
}

const PackedWeight& CudaBackend::ready(const Weight& w) {
  finish_weights();
  return packed(w);
}

CudaBackend::Input CudaBackend::input_of(const Tensor& x, const Tensor& normed, const NormArgs& args, const Weight& w) {
  if (!args.weight) return {aligned(x)};
  const cuda::DeferredNorm norm_later{normed, x, args};
  const bool can_wait = act_ == DType::kF16 && !deterministic_ && cuda::can_defer(norm_later) &&
                        x.cols <= kMaxDeferred && normed.dtype == act_ && on_16_bytes(normed) &&
                        kernel_for(w, x.rows).run == cuda::matvec;
  if (can_wait) return {.x = normed, .norm = norm_later};
  Input input{normed};
  if (norm_quantized(input, x, args, w)) return input;
  cuda::norm_rows(normed, x, args, device_, rounds_input(w, x.rows));
  check_launch("norm_rows");
  return input;
}

// Whether n rows are rounded to 8 bits before they are multiplied with w. This saves power for the same reason as the
// rounding of copies (add_halves), and time, because products of many rows run at the limit of power. It changes a row
// less than the quantization has changed w. Weights in 16 bits have no copies, so their rows keep 11 bits.
bool CudaBackend::rounds_input(const Weight& w, int64_t n) { return act_ == DType::kF16 && kernel_for(w, n).halves; }

// Writes the norm of x to the input, also as 8-bit floats if the first product needs those.
bool CudaBackend::norm_quantized(Input& input, const Tensor& x, const NormArgs& args, const Weight& weight) {
  if (!kernel_for(weight, x.rows).float8 || !cuda::can_norm_quantize(input.x, x, args)) return false;
  const bool whole_rows = cuda::takes_whole_rows(ready(weight), x.rows);
  const int64_t n = float8_group(x.rows, whole_rows);
  if (n == 0) return false;
  void* to = scratch_at_least(decoded_, cuda::float8_rows_bytes(n, x.cols));
  input.float8 = cuda::norm_quantize(to, input.x, x, args, n, whole_rows, device_);
  check_launch("norm_quantize");
  return true;
}

// The first product of an input computes and writes the norm. Later products read it.
void CudaBackend::launch(const cuda::MatmulKernel& kernel, cuda::Matvec m, Input& input) {
  m.x = aligned(input.x);
  if (input.norm && kernel.run != cuda::matvec)
    norm(input.norm->y, input.norm->x, input.norm->args), input.norm.reset();
  const std::optional<cuda::DeferredNorm> norm = std::exchange(input.norm, std::nullopt);
  if (norm) m.norm = &*norm;
  if (kernel.run == cuda::matvec) m.arranged = scratch_at_least(arranged_, cuda::matvec_scratch(m.x));
  m.batch_invariant = deterministic_;
  m.specialised = specialised_for(*m.jobs[0].w);
  kernel.run(m, device_);
  check_launch(kernel.name);
}

// y = x w^T + bias, or y += x w^T + bias.
void CudaBackend::product(const Tensor& y, Input& input, const Weight& weight, const Tensor& bias, bool accumulate) {
  CHECK_EQ(input.x.cols, weight.n_in);
  CHECK_EQ(y.cols, weight.n_out);
  const PackedWeight& w = ready(weight);
  const cuda::MatmulKernel& kernel = kernel_for(weight, input.x.rows);
  if (kernel.run != nullptr)
    return launch(kernel, {.jobs = {{&w, data_of(bias)}}, .y = {y}, .n_jobs = 1, .accumulate = accumulate}, input);
  if (!library_product(y, input, w, kernel, accumulate)) {
    const Tensor x = in_act_dtype(input.x);
    if (w.layout != cuda::Layout::kDense && (kernel.decodes || kernel.float8 || kernel.halves)) {
      input.float8.reset();  // the decoded weight overwrites it
      decoded_product(y, x, w, accumulate);
    } else {
      cuda::plain_matmul(y, x, w, accumulate, device_);
      check_launch("plain_matmul");
    }
  }
  if (bias) {
    cuda::add_rows(y, bias, true, device_);
    check_launch("add_rows");
  }
}

// Returns false, and leaves y unchanged, if cuBLASLt cannot read the weight as it is stored.
bool CudaBackend::library_product(const Tensor& y, Input& input, const PackedWeight& w,
                                  const cuda::MatmulKernel& kernel, bool accumulate) {
  if (kernel.float8) return float8_product(y, input, w, accumulate);
  if (kernel.decodes || deterministic_) return false;
  const PackedWeight* dense = kernel.halves ? w.halves : &w;
  return dense != nullptr && dense_->run(y, in_act_dtype(input.x), dense->data, dense->factor, accumulate, device_);
}

// The products of one input next to each other, in scratch, if the weights are joined, cuBLASLt multiplies them, and
// scratch has room.
std::optional<Tensor> CudaBackend::joined_product(Input& input, std::span<const Weight* const> weights) {
  const int64_t n = input.x.rows;
  const cuda::MatmulKernel& kernel = kernel_for(*weights[0], n);
  const PackedWeight* first = kernel.halves ? packed(*weights[0]).halves : &packed(*weights[0]);
  const PackedWeight* whole = first != nullptr ? first->whole : nullptr;
  if (whole == nullptr || input.norm || kernel.run != nullptr) return {};
  const Tensor y{up_.data(), act_, n, whole->n_out, whole->n_out};
  if (static_cast<size_t>(n * whole->n_out) * dtype_bytes(act_) > up_.size()) return {};
  return dense_->run(y, in_act_dtype(input.x), whole->data, whole->factor, /*accumulate=*/false, device_)
             ? std::optional(y)
             : std::nullopt;
}

// Whether cuBLASLt can run these products side by side. They share scratch, so none of them may decode its weight.
bool CudaBackend::can_run_side_by_side(const Input& input, std::span<const Weight* const> weights) {
  constexpr int64_t kMaxRows = 512;  // more rows fill the device
  const int64_t n = input.x.rows;
  if (deterministic_ || input.norm || n > kMaxRows || input.x.dtype != act_ || !on_16_bytes(input.x)) return false;
  const PackedWeight& first = ready(*weights[0]);
  return std::ranges::all_of(weights, [&](const Weight* w) {
    const cuda::MatmulKernel& kernel = kernel_for(*w, n);
    return kernel.run == nullptr && !kernel.decodes && packed(*w).layout == first.layout &&
           cuda::takes_whole_rows(packed(*w), n) == cuda::takes_whole_rows(first, n);
  });
}

// y[i] = x w[i]^T. Kernels for few rows or few outputs leave much of the device idle, so all products but the first run
// on a branch.
void CudaBackend::products(std::span<const Tensor> y, Input& input, std::span<const Weight* const> weights) {
  std::vector<bool> done(y.size());
  if (can_run_side_by_side(input, weights)) {
    const auto run = [&](size_t i) {
      const cuda::MatmulKernel& kernel = kernel_for(*weights[i], input.x.rows);
      done[i] = library_product(y[i], input, packed(*weights[i]), kernel, /*accumulate=*/false);
    };
    if (packed(*weights[0]).layout == cuda::Layout::kFloat8)
      quantize(input, cuda::takes_whole_rows(packed(*weights[0]), input.x.rows));
    device_.side_by_side(
        [&] {
          for (size_t i = 1; i < y.size(); ++i) run(i);
        },
        [&] { run(0); });
  }
  for (size_t i = 0; i < y.size(); ++i)
    if (!done[i]) product(y[i], input, *weights[i], {}, false);
}

// Quantizes the input to 8-bit floats: all rows, or only whole groups of rows.
void CudaBackend::quantize(Input& input, bool whole_rows) {
  const int64_t n_grouped = float8_group(input.x.rows, whole_rows);
  if (n_grouped == 0 || (input.float8 && input.float8->whole_rows == whole_rows)) return;
  void* to = scratch_at_least(decoded_, cuda::float8_rows_bytes(n_grouped, input.x.cols));
  const Tensor x = aligned(in_act_dtype(input.x));
  input.float8 = cuda::quantize_rows(to, x.slice_rows(0, n_grouped), whole_rows, device_);
  check_launch("quantize_rows");
}

// Returns false if cuBLASLt has no kernel for these sizes. The products of one input share its quantized rows. Rows
// after the last whole group are multiplied as halves.
bool CudaBackend::float8_product(const Tensor& y, Input& input, const PackedWeight& w, bool accumulate) {
  const int64_t n = input.x.rows;
  const int at_once = cuda::most_float8_rows(device_.limits(), w.n_in);
  quantize(input, cuda::takes_whole_rows(w, n));
  const int64_t n_grouped = input.float8 ? input.float8->n : 0;
  if (n_grouped < n && at_once == 0) return false;
  if (n_grouped > 0 && !dense_->run_float8(y.slice_rows(0, n_grouped), *input.float8, w, accumulate, device_))
    return false;
  const Tensor x = aligned(in_act_dtype(input.x));
  for (int64_t first = n_grouped; first < n; first += at_once) {
    const int64_t n_rows = std::min<int64_t>(at_once, n - first);
    cuda::float8_rows({.x = x.slice_rows(first, n_rows),
                       .jobs = {{&w, nullptr}},
                       .y = {y.slice_rows(first, n_rows)},
                       .n_jobs = 1,
                       .accumulate = accumulate},
                      device_);
    check_launch("float8_rows");
  }
  return true;
}

// Decodes one slice of the weight at a time to halves, which stay in the L2 cache until the product reads them.
void CudaBackend::decoded_product(const Tensor& y, const Tensor& x, const PackedWeight& w, bool accumulate) {
  const int64_t row_bytes = w.n_in * static_cast<int64_t>(dtype_bytes(act_)),
                slice = cuda::decoded_rows(w.n_out, row_bytes);
  void* decoded = scratch_at_least(decoded_, static_cast<size_t>(slice * row_bytes));
  for (int64_t first = 0; first < w.n_out; first += slice) {
    const int64_t n = std::min(slice, w.n_out - first);
    cuda::unpack_rows(decoded, w, first, n, device_);
    check_launch("unpack_rows");
    const Tensor part{static_cast<char*>(y.data) + first * static_cast<int64_t>(dtype_bytes(y.dtype)), y.dtype, y.rows,
                      n, y.stride};
    if (!deterministic_) {
      CHECK(dense_->run(part, x, decoded, w.factor, accumulate, device_));
      continue;
    }
    const PackedWeight halves{.factor = w.factor, .n_out = n, .n_in = w.n_in, .data = decoded};
    cuda::tile_matmul({.x = aligned(x),
                       .jobs = {{&halves, nullptr}},
                       .y = {part},
                       .n_jobs = 1,
                       .accumulate = accumulate,
                       .batch_invariant = true,
                       .decoded = true},
                      device_);
    check_launch("tile_matmul");
  }
}

void CudaBackend::matmul(Tensor y, Tensor x, const Weight& w, Tensor bias) {
  Input input{x};
  product(y, input, w, bias, false);
}

void CudaBackend::matmul_add(Tensor residual, Tensor x, const Weight& w, Tensor bias) {
  Input input{x};
  product(residual, input, w, bias, true);
}

void CudaBackend::norm_matmul(Tensor y, Tensor x, Tensor normed, const NormArgs& args, const Weight& w, Tensor bias) {
  Input input = input_of(x, normed, args, w);
  product(y, input, w, bias, false);
}

void CudaBackend::gate_up(const GateUpArgs& a) {
  const PackedWeight &w_gate = ready(*a.w_gate), &w_up = packed(*a.w_up);
  Input input = input_of(a.x, a.normed, a.norm, *a.w_gate);
  if (const cuda::MatmulKernel& kernel = kernel_for(*a.w_gate, a.x.rows);
      kernel.run != nullptr && cuda::share_matvec(w_gate, w_up)) {
    const cuda::Matvec m{.jobs = {{&w_gate, data_of(a.b_gate)}, {&w_up, data_of(a.b_up)}},
                         .y = {a.y},
                         .n_jobs = 2,
                         .gate = static_cast<int>(a.act)};
    return launch(kernel, m, input);
  }
  const Weight* weights[] = {a.w_gate, a.w_up};
  const auto finish = [&](const Tensor& gate, const Tensor& up) {
    for (const auto& [y, bias] : {std::pair{gate, a.b_gate}, {up, a.b_up}})
      if (bias) cuda::add_rows(y, bias, true, device_);
    cuda::act_mul_rows(a.y, gate, up, a.act, device_, rounds_input(*a.w_gate, a.x.rows));  // as for the down product
    check_launch("act_mul_rows");
  };
  if (const auto both = joined_product(input, weights))
    return finish(both->slice_cols(0, a.y.cols), both->slice_cols(a.y.cols, a.y.cols));
  const Tensor up{scratch_at_least(up_, static_cast<size_t>(a.y.rows * a.y.cols) * dtype_bytes(a.y.dtype)), a.y.dtype,
                  a.y.rows, a.y.cols, a.y.cols};
  const Tensor outputs[] = {a.y, up};
  products(outputs, input, weights);
  finish(a.y, up);
}

// One launch for all of qkv(), if dot_rows runs and supports these heads and this cache.
bool CudaBackend::qkv_in_one_launch(const QkvArgs& a, Input& input) {
  const cuda::MatmulKernel& kernel = kernel_for(*a.wq, a.x.rows);
  const auto end = cuda::qkv_end(a, view_of(*a.kv), batch_of(*a.kv));
  if (!end || kernel.run != cuda::matvec || packed(*a.wq).layout != cuda::Layout::kDense || !alike(*a.wq, *a.wk) ||
      !alike(*a.wq, *a.wv))
    return false;
  launch(kernel,
         {.jobs = {{&packed(*a.wq), data_of(a.bq)}, {&packed(*a.wk), data_of(a.bk)}, {&packed(*a.wv), data_of(a.bv)}},
          .y = {a.q, a.k, a.v},
          .n_jobs = 3,
          .end = &*end},
         input);
  return true;
}

void CudaBackend::qkv(const QkvArgs& a) {
  const bool norms_all_heads = a.q_norm.weight && a.q_norm.weight.cols != a.head_dim;
  if (norms_all_heads || !cuda::can_finish_qkv(a)) return Backend::qkv(a);
  const Weight* weights[] = {a.wq, a.wk, a.wv};
  const Tensor outputs[] = {a.q, a.k, a.v};
  ready(*a.wq);
  Input input = input_of(a.x, a.normed, a.norm, *a.wq);
  const auto finish = [&](const Tensor& q, const Tensor& k, const Tensor& v) {
    cuda::finish_qkv(a, q, k, v, view_of(*a.kv), batch_of(*a.kv), device_);
    check_launch("finish_qkv");
  };
  if (const auto all = joined_product(input, weights))
    return finish(all->slice_cols(0, a.q.cols), all->slice_cols(a.q.cols, a.k.cols),
                  all->slice_cols(a.q.cols + a.k.cols, a.v.cols));
  if (qkv_in_one_launch(a, input)) return;
  for (int i = 0; i < 3;) {  // neighbours of one layout share a launch, or run side by side
    const cuda::MatmulKernel& kernel = kernel_for(*weights[i], input.x.rows);
    if (kernel.run == nullptr) {
      const int n = i == 0 && can_run_side_by_side(input, weights) ? 3 : 1;
      products(std::span(outputs).subspan(i, n), input, std::span(weights).subspan(i, n));
      i += n;
      continue;
    }
    cuda::Matvec m{};
    const int first = i;
    for (; i < 3 && alike(*weights[first], *weights[i]) &&
           kernel.can(device_.limits(), packed(*weights[i]), input.x.rows);
         ++i) {
      m.jobs[m.n_jobs].w = &packed(*weights[i]);
      m.y[m.n_jobs++] = outputs[i];
    }
    launch(kernel, m, input);
  }
  finish(a.q, a.k, a.v);
}

// The kernel that runs all layers on the whole GPU. Null if there is none, or not yet.
const void* CudaBackend::grid_kernel(const cuda::LayersStep& step) {
  if (!specialised_) return nullptr;
  const std::string source = cuda::grid_source(step, device_.limits());
  return source.empty() ? nullptr : specialised_->find({.which = cuda::SpecialisedKernel::kGrid, .source = source});
}

std::unique_ptr<cuda::LayersStep> CudaBackend::layers_step_of(const PlainLayersBlock& b, int n_tokens) {
  if (act_ != DType::kF16 || deterministic_) return nullptr;
  const KvCache& kv = *b.attention(0).kv;
  return cuda::layers_step(b, view_of(kv), batch_of(kv), n_tokens);
}

// One launch for the embedding and the norms, one for the projection.
void CudaBackend::draft_input(const DraftInputBlock& b) {
  const Tensor x = b.x.slice_rows(0, n_tokens_), pair = b.pair.slice_rows(0, n_tokens_),
               hidden = b.hidden ? b.hidden.slice_rows(0, n_tokens_) : x;
  if (!cuda::can_draft_pair(b, pair, hidden)) return Backend::draft_input(b);
  ready(b.table);
  cuda::draft_pair(b, pair, hidden, device_batch_.view().tokens, device_);
  check_launch("draft_pair");
  matmul(x, pair, b.project, {});
}

void CudaBackend::plain_layers(const PlainLayersBlock& b) {
  const auto step = n_tokens_ <= cuda::kMaxClusterTokens ? layers_step_of(b, n_tokens_) : nullptr;
  const bool is_recorded = min_q_len_ == max_q_len_ && max_q_len_ <= kMaxRecordedTokens;
  if (step && most_kv_ <= cuda::kMaxClusterKv && cuda::runs_on_clusters(*step, is_recorded, device_)) {
    cuda::run_cluster(*step, max_q_len_, static_cast<cuda::ClusterTurns*>(turns_.data()), device_);
    return check_launch("run_cluster");
  }
  const bool may_run_grid = step && max_q_len_ == 1 && most_kv_ <= cuda::longest_on_grid(*step);
  if (const void* kernel = may_run_grid ? grid_kernel(*step) : nullptr) {
    cuda::run_grid(kernel, *step, grid_.data(), device_);
    return check_launch("run_grid");
  }
  Backend::plain_layers(b);
}

void CudaBackend::embed(Tensor x, const Weight& table, float scale) {
  cuda::embed_rows(x, ready(table), device_batch_.view().tokens, scale, device_);
  check_launch("embed_rows");
}

void CudaBackend::norm(Tensor y, Tensor x, const NormArgs& args) {
  cuda::norm_rows(y, x, args, device_);
  check_launch("norm_rows");
}

void CudaBackend::add(Tensor x, Tensor y) {
  cuda::add_rows(x, y, false, device_);
  check_launch("add_rows");
}

void CudaBackend::act_mul(Tensor y, Tensor gate, Tensor up, Activation act) {
  cuda::act_mul_rows(y, gate, up, act, device_);
  check_launch("act_mul_rows");
}

void CudaBackend::rope_angles(Tensor angles, Tensor inv_freq, float magnitude) {
  cuda::angles_of_positions(angles, inv_freq, magnitude, device_batch_.view().positions, device_);
  check_launch("angles_of_positions");
}

void CudaBackend::rope(Tensor x, int n_heads, const RopeArgs& args) {
  cuda::rope_rows(x, n_heads, args, device_);
  check_launch("rope_rows");
}

void CudaBackend::kv_write(KvCache& kv, int layer, Tensor k, Tensor v) {
  cuda::write_kv(view_of(kv), layer, k, v, batch_of(kv), device_);
  check_launch("write_kv");
}

void CudaBackend::attention(Tensor y, Tensor q, const KvCache& kv, const AttentionArgs& args) {
  const cuda::DeviceKv cache = view_of(kv);
  if (act_ == DType::kF16 && cuda::can_attend(cache, args, device_.limits())) {
    const cuda::AttentionStep step{.n_tokens = n_tokens_,
                                   .n_seqs = n_seqs_,
                                   .max_q_len = max_q_len_,
                                   .n_of_len = n_of_len_,
                                   .most_kv = most_kv_,
                                   .batch_invariant = deterministic_};
    cuda::AttentionPlan plan = cuda::plan_attention(cache, args, step, device_.limits());
    // The next product is not known here. With so many rows, it reads a copy if the model has copies.
    plan.rounds = !deterministic_ && !halves_.empty() && y.rows > cuda::kFewRowsOfHalves;
    if (plan.part_bytes > 0) plan.parts = scratch_at_least(partials_, plan.part_bytes);
    cuda::attend(y, in_act_dtype(q), cache, args, batch_of(kv), plan, device_);
  } else {
    cuda::attend_naive(y, q, cache, args, batch_of(kv), device_, deterministic_);
  }
  check_launch("attend");
}

void CudaBackend::act(Tensor x, Activation act) {
  cuda::act_rows(x, act, device_);
  check_launch("act_rows");
}

void CudaBackend::add_positions(Tensor x, Tensor table) {
  cuda::add_positions(x, table, device_batch_.view().positions, device_);
  check_launch("add_positions");
}

void CudaBackend::pool(Tensor y, Tensor x, Pooling pooling) {
  cuda::pool(y, x, device_batch_.view().q_start, pooling, device_);
  check_launch("pool");
}

void CudaBackend::gather_rows(Tensor y, Tensor x) {
  cuda::gather(y, x, device_batch_.view().logit_rows, device_);
  check_launch("gather");
}

void CudaBackend::scale(Tensor x, float factor, float softcap) {
  cuda::scale_rows(x, factor, softcap, device_);
  check_launch("scale_rows");
}

}  // namespace ingot
