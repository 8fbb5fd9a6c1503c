// The verbs of CudaBackend: which kernel, on which tensors. The norm of a single row waits for the next verb: a product that takes its
// result computes it on the way, which saves a launch; any other verb, and everything that looks at the device, has it launched first.
#include <algorithm>
#include <utility>

#include "backend/cuda/cuda_backend.h"

namespace ingot {

using cuda::check_launch;
using cuda::PackedWeight;

namespace {

cuda::DeviceKv view_of(const KvCache& kv) { return static_cast<const CudaKv&>(kv).view(); }

const float* data_of(const Tensor& bias) { return bias ? bias.f32() : nullptr; }

bool alike(const Weight& a, const Weight& b) { return cuda::share_matvec(packed(a), packed(b)); }

constexpr int64_t kMostDeferred = 16384;  // columns of a row that a product norms on the way

}  // namespace

Tensor CudaBackend::narrowed(const Tensor& x) {
  if (x.dtype == act_) return x;
  const Tensor to{scratch_at_least(narrow_, static_cast<size_t>(x.rows * x.cols) * dtype_bytes(act_)), act_, x.rows,
                  x.cols, x.cols};
  cuda::convert(to, x, device_);
  check_launch("convert");
  return to;
}

void CudaBackend::settle() {
  settle_layers();
  if (!pending_) return;
  const cuda::DeferredNorm norm = *std::exchange(pending_, std::nullopt);
  cuda::norm_rows(norm.y, norm.x, norm.args, device_);
  check_launch("norm_rows");
}

// Every verb comes by here before it takes a weight or launches, from whatever thread. Whole layers go to a cluster as one, if it takes them; verbs of one that is not whole are launched as they came.
void CudaBackend::settle_layers() {
  device_.make_current();
  finish_weights();
  if (layers_.empty()) return;
  std::vector<cuda::LayerVerbs> layers = layers_.take();
  const bool records = std::exchange(records_layers_, false);
  cuda::LayerVerbs rest;
  if (layers.back().n < cuda::LayerVerbs::kAll) {
    rest = layers.back();
    layers.pop_back();
  }
  const auto step = layers.empty() ? nullptr : cuda::cluster_step(layers, view_of(*layers.front().qkv.kv), batch_.view());
  if (step && cuda::can_run_cluster(*step, device_)) {
    cuda::run_cluster(*step, device_);
    check_launch("run_cluster");
  } else {
    for (const cuda::LayerVerbs& layer : layers) replay(layer);
  }
  replay(rest);
  records_layers_ = records;
}

void CudaBackend::replay(const cuda::LayerVerbs& l) {
  if (l.n > 0) norm(l.attention_norm.y, l.attention_norm.x, l.attention_norm.args);
  if (l.n > 1) qkv(l.qkv);
  if (l.n > 2) attention(l.attended, l.qkv.q, *l.qkv.kv, l.attention);
  if (l.n > 3) matmul_add(l.attention_norm.x, l.attended, *l.out, {});
  if (l.n > 4) norm(l.ffn_norm.y, l.ffn_norm.x, l.ffn_norm.args);
  if (l.n > 5) gate_up(l.hidden, l.ffn_norm.y, *l.gate, *l.up, {}, {}, l.act);
  if (l.n > 6) matmul_add(l.attention_norm.x, l.hidden, *l.down, {});
}

void CudaBackend::launch(const cuda::MatmulKernel& kernel, cuda::Matvec m) {
  const bool takes = pending_ && pending_->y.data == m.x.data && pending_->y.cols == m.x.cols && m.x.rows == 1 &&
                     m.x.cols <= kMostDeferred && kernel.run == cuda::matvec;
  if (!takes) settle();
  const std::optional<cuda::DeferredNorm> norm = std::exchange(pending_, std::nullopt);
  if (norm) m.norm = &*norm;
  if (kernel.run == cuda::matvec) m.arranged = scratch_at_least(arranged_, cuda::matvec_scratch(m.x));
  m.alone = deterministic_;
  m.specialised = specialised_for(*m.jobs[0].w);
  kernel.run(m, device_);
  check_launch(kernel.name);
}

// y = x w^T + bias, or y += x w^T + bias.
void CudaBackend::product(const Tensor& y, const Tensor& x_any, const Weight& weight, const Tensor& bias,
                          bool accumulate) {
  settle_layers();
  CHECK_EQ(x_any.cols, weight.n_in);
  CHECK_EQ(y.cols, weight.n_out);
  const PackedWeight& w = packed(weight);
  const cuda::MatmulKernel& kernel = kernel_for(weight, x_any.rows);
  if (x_any.dtype != act_ || kernel.run == nullptr || !on_16_bytes(x_any)) settle();
  const Tensor x = kernel.run != nullptr ? aligned(x_any) : narrowed(x_any);
  if (kernel.run != nullptr)
    return launch(kernel, {.x = x, .jobs = {{&w, data_of(bias)}}, .y = {y}, .n_jobs = 1, .accumulate = accumulate});
  if (kernel.decodes) {
    decoded_product(y, x, w, accumulate);
  } else {
    if (deterministic_ || !dense_->run(y, x, w.data, 1.0f, accumulate, device_)) cuda::plain_matmul(y, x, w, accumulate, device_);
    check_launch("plain_matmul");
  }
  if (bias) {
    cuda::add_rows(y, bias, true, device_);
    check_launch("add_rows");
  }
}

// Slice by slice of the weight, as halves that stay in the L2 cache until cuBLASLt reads them.
void CudaBackend::decoded_product(const Tensor& y, const Tensor& x, const PackedWeight& w, bool accumulate) {
  const int64_t row_bytes = w.n_in * static_cast<int64_t>(dtype_bytes(act_)), slice = cuda::decoded_rows(w.n_out, row_bytes);
  void* decoded = scratch_at_least(decoded_, static_cast<size_t>(slice * row_bytes));
  for (int64_t first = 0; first < w.n_out; first += slice) {
    const int64_t n = std::min(slice, w.n_out - first);
    cuda::unpack_rows(decoded, w, first, n, device_);
    check_launch("unpack_rows");
    const Tensor part{static_cast<char*>(y.data) + first * static_cast<int64_t>(dtype_bytes(y.dtype)), y.dtype, y.rows, n, y.stride};
    CHECK(dense_->run(part, x, decoded, w.factor, accumulate, device_));
  }
}

void CudaBackend::matmul(Tensor y, Tensor x, const Weight& w, Tensor bias) { product(y, x, w, bias, false); }

void CudaBackend::matmul_add(Tensor residual, Tensor x, const Weight& w, Tensor bias) {
  if (records_layers_ && layers_.matmul_add(residual, x, w, bias)) return;
  product(residual, x, w, bias, true);
}

void CudaBackend::gate_up(Tensor y, Tensor x, const Weight& w_gate, const Weight& w_up, Tensor bias_gate,
                          Tensor bias_up, Activation act) {
  if (records_layers_ && layers_.gate_up(y, x, w_gate, w_up, bias_gate, bias_up, act)) return;
  settle_layers();
  if (x.dtype != act_ || !on_16_bytes(x)) settle();
  if (const cuda::MatmulKernel& kernel = kernel_for(w_gate, x.rows); kernel.run != nullptr && alike(w_gate, w_up)) {
    return launch(kernel,
                  {.x = aligned(x),
                   .jobs = {{&packed(w_gate), data_of(bias_gate)}, {&packed(w_up), data_of(bias_up)}},
                   .y = {y},
                   .n_jobs = 2,
                   .gate = static_cast<int>(act)});
  }
  const Tensor up{scratch_at_least(up_, static_cast<size_t>(y.rows * y.cols) * dtype_bytes(y.dtype)), y.dtype, y.rows,
                  y.cols, y.cols};
  product(y, x, w_gate, bias_gate, false);
  product(up, x, w_up, bias_up, false);
  act_mul(y, y, up, act);
}

void CudaBackend::qkv(const QkvArgs& a) {
  if (records_layers_ && layers_.qkv(a)) return;
  settle_layers();
  if (a.q_norm.weight && a.q_norm.weight.cols != a.head_dim) return Backend::qkv(a);  // over all heads
  const Weight* weights[] = {a.wq, a.wk, a.wv};
  const Tensor outputs[] = {a.q, a.k, a.v};
  if (a.x.dtype != act_ || !on_16_bytes(a.x)) settle();
  const Tensor x = aligned(a.x);
  for (int i = 0; i < 3;) {  // neighbours of one layout share a launch
    const cuda::MatmulKernel& kernel = kernel_for(*weights[i], x.rows);
    if (kernel.run == nullptr) {
      product(outputs[i], x, *weights[i], {}, false);
      ++i;
      continue;
    }
    cuda::Matvec m{.x = x};
    const int first = i;
    for (; i < 3 && alike(*weights[first], *weights[i]) && kernel.can(device_.limits(), packed(*weights[i]), x.rows); ++i) {
      m.jobs[m.n_jobs].w = &packed(*weights[i]);
      m.y[m.n_jobs++] = outputs[i];
    }
    launch(kernel, m);
  }
  cuda::finish_qkv(a, true, view_of(*a.kv), batch_.view(), device_);
  check_launch("finish_qkv");
}

void CudaBackend::embed(Tensor x, const Weight& table, float scale) {
  settle();
  cuda::embed_rows(x, packed(table), batch_.view().tokens, scale, device_);
  check_launch("embed_rows");
}

void CudaBackend::norm(Tensor y, Tensor x, const NormArgs& args) {
  if (records_layers_ && layers_.norm({y, x, args})) return;
  settle();
  if (act_ == DType::kF16 && !deterministic_ && cuda::can_defer({y, x, args})) {
    pending_ = {y, x, args};
    return;
  }
  cuda::norm_rows(y, x, args, device_);
  check_launch("norm_rows");
}

void CudaBackend::add_norm(Tensor out, Tensor residual, Tensor y, const NormArgs& args) {
  settle();
  cuda::add_norm_rows(out, residual, y, args, device_);
  check_launch("add_norm_rows");
}

void CudaBackend::add(Tensor x, Tensor y) {
  settle();
  cuda::add_rows(x, y, false, device_);
  check_launch("add_rows");
}

void CudaBackend::act_mul(Tensor y, Tensor gate, Tensor up, Activation act) {
  settle();
  cuda::act_mul_rows(y, gate, up, act, device_);
  check_launch("act_mul_rows");
}

void CudaBackend::rope_angles(Tensor angles, Tensor inv_freq, float magnitude) {
  settle();
  cuda::angles_of_positions(angles, inv_freq, magnitude, batch_.view().positions, device_);
  check_launch("angles_of_positions");
}

void CudaBackend::rope(Tensor x, int n_heads, const RopeArgs& args) {
  settle();
  cuda::rope_rows(x, n_heads, args, device_);
  check_launch("rope_rows");
}

void CudaBackend::kv_write(KvCache& kv, int layer, Tensor k, Tensor v) {
  settle();
  cuda::write_kv(view_of(kv), layer, k, v, batch_.view(), device_);
  check_launch("write_kv");
}

int CudaBackend::kv_bucket() const {
  int bucket = 128;
  while (bucket < max_kv_len_) bucket *= 2;
  return bucket;
}

// As many splits as fill the GPU twice, of at least 128 keys each.
cuda::AttentionPlan CudaBackend::plan_attention(const AttentionArgs& a) {
  const int group = a.n_heads / a.n_kv_heads;
  cuda::AttentionPlan plan{.n_seqs = n_seqs_, .n_tokens = n_tokens_, .max_q_len = max_q_len_};
  plan.alone = deterministic_;
  plan.any_short = !deterministic_ && min_q_len_ <= cuda::short_rows(group);
  plan.any_long = deterministic_ || max_q_len_ > cuda::short_rows(group);
  const int n_tasks = n_seqs_ * a.n_kv_heads;
  plan.n_splits = std::clamp((2 * device_.n_multiprocessors() + n_tasks - 1) / n_tasks, 1, kv_bucket() / 128);
  if (plan.any_short && plan.n_splits > 1) {
    const size_t n_floats =
        static_cast<size_t>(n_tasks) * 16 * static_cast<size_t>(plan.n_splits) * static_cast<size_t>(a.head_dim + 2);
    plan.partials = static_cast<float*>(scratch_at_least(partials_, n_floats * sizeof(float)));
  }
  return plan;
}

void CudaBackend::attention(Tensor y, Tensor q, const KvCache& kv, const AttentionArgs& args) {
  if (records_layers_ && layers_.attention(y, q, kv, args)) return;
  settle();
  if (act_ == DType::kF16 && cuda::can_attend(view_of(kv), args)) {
    cuda::attend(y, narrowed(q), view_of(kv), args, batch_.view(), plan_attention(args), device_);
  } else {
    cuda::attend_naive(y, q, view_of(kv), args, batch_.view(), device_, 0, deterministic_);
  }
  check_launch("attend");
}

void CudaBackend::act(Tensor x, Activation act) {
  settle();
  cuda::act_rows(x, act, device_);
  check_launch("act_rows");
}

void CudaBackend::add_positions(Tensor x, Tensor table) {
  settle();
  cuda::add_positions(x, table, batch_.view().positions, device_);
  check_launch("add_positions");
}

void CudaBackend::pool(Tensor y, Tensor x, Pooling pooling) {
  settle();
  cuda::pool(y, x, batch_.view().q_start, pooling, device_);
  check_launch("pool");
}

void CudaBackend::gather_rows(Tensor y, Tensor x) {
  settle();
  cuda::gather(y, x, batch_.view().logit_rows, device_);
  check_launch("gather");
}

void CudaBackend::scale(Tensor x, float factor, float softcap) {
  settle();
  cuda::scale_rows(x, factor, softcap, device_);
  check_launch("scale_rows");
}

}  // namespace ingot
