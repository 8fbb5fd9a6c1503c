// Wrapped: a backend that passes every op to an inner backend. Decorators derive from it.
#pragma once
#include <functional>
#include <memory>
#include <utility>

#include "backend/backend.h"
#include "backend/blocks/remote.h"

namespace ingot {

class Wrapped : public Backend {
 public:
  explicit Wrapped(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}

  std::string name() const override { return inner_->name(); }
  std::string description() const override { return inner_->description(); }
  int n_threads() const override { return inner_->n_threads(); }
  int fast_head_dim(int head_dim) const override { return inner_->fast_head_dim(head_dim); }
  DType act_dtype() const override { return inner_->act_dtype(); }
  bool is_host() const override { return inner_->is_host(); }
  int prompt_chunk() const override { return inner_->prompt_chunk(); }
  Tensor alloc(DType dtype, int64_t rows, int64_t cols) override { return inner_->alloc(dtype, rows, cols); }
  Weight prepare(const Weight& host, unsigned use) override { return inner_->prepare(host, use); }
  bool keeps_kv_as(KvTypes types) const override { return inner_->keeps_kv_as(types); }
  std::unique_ptr<KvCache> make_kv(const KvShape& shape) override { return inner_->make_kv(shape); }
  std::unique_ptr<StateCache> make_states(const StateShape& shape) override { return inner_->make_states(shape); }
  size_t packed_bytes(const Weight& shape, unsigned use) const override { return inner_->packed_bytes(shape, use); }
  bool save_memory() override { return inner_->save_memory(); }
  bool reads_codes(Format format, unsigned use) const override { return inner_->reads_codes(format, use); }
  size_t kv_bytes(const KvShape& shape) const override { return inner_->kv_bytes(shape); }
  size_t state_bytes(const StateShape& shape) const override { return inner_->state_bytes(shape); }
  void reserve(const StepLimits& limits) override { inner_->reserve(limits); }
  size_t driver_bytes() const override { return inner_->driver_bytes(); }
  size_t available_bytes() const override { return inner_->available_bytes(); }
  size_t device_bytes() const override { return inner_->device_bytes(); }
  size_t scratch_bytes(const StepLimits& limits) const override { return inner_->scratch_bytes(limits); }
  size_t allocated_bytes() const override { return inner_->allocated_bytes(); }
  void upload(const Tensor& to, const void* from) override { inner_->upload(to, from); }
  std::shared_ptr<float[]> host_floats(size_t n) override { return inner_->host_floats(n); }
  void download(void* to, const Tensor& from) override { inner_->download(to, from); }
  std::vector<std::string> matmul_kernels(const Weight& w, int64_t rows) const override {
    return inner_->matmul_kernels(w, rows);
  }
  void use_matmul_kernel(const std::string& kernel) override { inner_->use_matmul_kernel(kernel); }
  void await_kernels() override { inner_->await_kernels(); }
  Peak measure_peak(Format weights) override { return inner_->measure_peak(weights); }
  // Backend::run passes every op through this object, so the inner backend cannot record and replay steps.
  void begin(const Batch& batch) override {
    set_step(batch, {batch.n_tokens(), batch.n_seqs(), batch.n_logits()});  // only the inner backend has drawn tokens
    inner_->begin(batch);
  }
  void connect(std::shared_ptr<Communicator> ranks) override { inner_->connect(std::move(ranks)); }
  void synchronize() override { inner_->synchronize(); }
  std::vector<Sampled> wait() override { return inner_->wait(); }
  bool is_drawn() override { return inner_->is_drawn(); }
  uint64_t progress() const override { return Backend::progress() + inner_->progress(); }

  void sample(const Tensor& logits, std::span<const SampleRow> rows) override {
    around("sample", logits, [&] { inner_->sample(logits, rows); });
  }
  void embed(Tensor x, const Weight& table, float scale) override {
    around("embed", x, [&] { inner_->embed(x, table, scale); });
  }
  void matmul(Tensor y, Tensor x, const Weight& w, Tensor bias) override {
    around("matmul", y, [&] { inner_->matmul(y, x, w, bias); });
  }
  void norm(Tensor y, Tensor x, const NormArgs& args) override {
    around("norm", y, [&] { inner_->norm(y, x, args); });
  }
  void add(Tensor x, Tensor y) override {
    around("add", x, [&] { inner_->add(x, y); });
  }
  void act_mul(Tensor y, Tensor gate, Tensor up, Activation act) override {
    around("act_mul", y, [&] { inner_->act_mul(y, gate, up, act); });
  }
  void rope_angles(Tensor angles, Tensor inv_freq, float magnitude, Tensor axes) override {
    around("rope_angles", angles, [&] { inner_->rope_angles(angles, inv_freq, magnitude, axes); });
  }
  void rope(Tensor x, int n_heads, const RopeArgs& args) override {
    around("rope", x, [&] { inner_->rope(x, n_heads, args); });
  }
  void hadamard(Tensor x, int block) override {
    around("hadamard", x, [&] { inner_->hadamard(x, block); });
  }
  void kv_write(KvCache& kv, int layer, Tensor k, Tensor v) override {
    around("kv_write", k, [&] { inner_->kv_write(kv, layer, k, v); });
  }
  void attention(Tensor y, Tensor q, const KvCache& kv, const AttentionArgs& args) override {
    around("attention", y, [&] { inner_->attention(y, q, kv, args); });
  }
  void act(Tensor x, Activation act, Tensor bias) override {
    around("act", x, [&] { inner_->act(x, act, bias); });
  }
  void add_positions(Tensor x, Tensor table) override {
    around("add_positions", x, [&] { inner_->add_positions(x, table); });
  }
  void cut_patches(Tensor y, const PatchArgs& args) override {
    around("cut_patches", y, [&] { inner_->cut_patches(y, args); });
  }
  void add_mixed_rows(Tensor x, Tensor table, Tensor rows, Tensor factors) override {
    around("add_mixed_rows", x, [&] { inner_->add_mixed_rows(x, table, rows, factors); });
  }
  void mean_rows(Tensor y, Tensor x) override {
    around("mean_rows", y, [&] { inner_->mean_rows(y, x); });
  }
  void pool(Tensor y, Tensor x, Pooling pooling) override {
    around("pool", y, [&] { inner_->pool(y, x, pooling); });
  }
  void gather_rows(Tensor y, Tensor x) override {
    around("gather_rows", y, [&] { inner_->gather_rows(y, x); });
  }
  void clamp(Tensor x, float low, float high) override {
    around("clamp", x, [&] { inner_->clamp(x, low, high); });
  }
  void scale(Tensor x, float factor, float softcap) override {
    around("scale", x, [&] { inner_->scale(x, factor, softcap); });
  }
  void copy(Tensor y, Tensor x) override {
    around("copy", y, [&] { inner_->copy(y, x); });
  }
  void zero(Tensor x) override {
    around("zero", x, [&] { inner_->zero(x); });
  }
  void all_reduce(Tensor x) override {
    around("all_reduce", x, [&] { inner_->all_reduce(x); });
  }
  void all_gather(Tensor y, Tensor x) override {
    around("all_gather", y, [&] { inner_->all_gather(y, x); });
  }
  void moe_route(Tensor ids, Tensor weights, Tensor logits, const RouteArgs& args) override {
    around("moe_route", weights, [&] { inner_->moe_route(ids, weights, logits, args); });
  }
  void moe_matmul(Tensor y, Tensor x, const Weight& w, Tensor ids, Tensor bias) override {
    around("moe_matmul", y, [&] { inner_->moe_matmul(y, x, w, ids, bias); });
  }
  void moe_combine(Tensor residual, Tensor y, Tensor weights) override {
    around("moe_combine", residual, [&] { inner_->moe_combine(residual, y, weights); });
  }
  void scale_by_position(Tensor x, const PositionScale& args) override {
    around("scale_by_position", x, [&] { inner_->scale_by_position(x, args); });
  }
  void scale_groups(Tensor x, Tensor factors, GroupFactor kind) override {
    around("scale_groups", x, [&] { inner_->scale_groups(x, factors, kind); });
  }
  void xielu(Tensor x, const Xielu& args) override {
    around("xielu", x, [&] { inner_->xielu(x, args); });
  }
  void match_size(Tensor y, Tensor x) override {
    around("match_size", y, [&] { inner_->match_size(y, x); });
  }
  void mix_streams(Tensor x, Tensor streams, Tensor coefs) override {
    around("mix_streams", x, [&] { inner_->mix_streams(x, streams, coefs); });
  }
  void correct_streams(Tensor x, Tensor predicted, Tensor streams, Tensor coefs) override {
    around("correct_streams", x, [&] { inner_->correct_streams(x, predicted, streams, coefs); });
  }
  void keep_above(Tensor x, float deviations) override {
    around("keep_above", x, [&] { inner_->keep_above(x, deviations); });
  }
  void gate(Tensor x, Tensor gate) override {
    around("gate", x, [&] { inner_->gate(x, gate); });
  }
  void short_conv(const ShortConvArgs& args) override {
    around("short_conv", args.x, [&] { inner_->short_conv(args); });
  }
  void delta_rule(const DeltaRuleArgs& args) override {
    around("delta_rule", args.y, [&] { inner_->delta_rule(args); });
  }
  void ssm_scan(const SsmScanArgs& args) override {
    around("ssm_scan", args.y, [&] { inner_->ssm_scan(args); });
  }
  void selective_scan(const SelectiveScanArgs& args) override {
    around("selective_scan", args.y, [&] { inner_->selective_scan(args); });
  }
  void rg_lru(const RgLruArgs& args) override {
    around("rg_lru", args.x, [&] { inner_->rg_lru(args); });
  }
  void kda_inputs(const KdaInputsArgs& args) override {
    around("kda_inputs", args.q, [&] { inner_->kda_inputs(args); });
  }
  void rank_one_rule(const RankOneRuleArgs& args) override {
    around("rank_one_rule", args.y, [&] { inner_->rank_one_rule(args); });
  }
  void mix_tokens(const MixTokensArgs& args) override {
    around("mix_tokens", args.y, [&] { inner_->mix_tokens(args); });
  }
  void wkv7_inputs(const Wkv7InputsArgs& args) override {
    around("wkv7_inputs", args.k, [&] { inner_->wkv7_inputs(args); });
  }
  void wkv7_outputs(const Wkv7OutputsArgs& args) override {
    around("wkv7_outputs", args.y, [&] { inner_->wkv7_outputs(args); });
  }
  void remote(const RemoteBlock& block) override {
    around("remote", block.x.slice_rows(0, batch().n_tokens()), [&] { inner_->remote(block); });
  }
  void moe(const MoeArgs& args) override {
    around_normed("moe", args.norm.weight ? args.normed : Tensor{}, args.residual, [&] { inner_->moe(args); });
  }
  void qkv(const QkvArgs& args) override {
    around_normed("qkv", args.norm.weight ? args.normed : Tensor{}, args.q, [&] { inner_->qkv(args); });
  }
  void gate_up(const GateUpArgs& args) override {
    around_normed("gate_up", args.norm.weight ? args.normed : Tensor{}, args.y, [&] { inner_->gate_up(args); });
  }
  void add_reduced(Tensor x, Tensor y, Tensor normed, const NormArgs& norm) override {
    around("add_reduced", x, [&] { inner_->add_reduced(x, y, normed, norm); });
  }
  bool norms_sums(const Tensor& x, const NormArgs& norm) const override { return inner_->norms_sums(x, norm); }
  void wkv7(const Wkv7Args& args) override {
    around("wkv7", args.out, [&] { inner_->wkv7(args); });
  }
  void matmuls(std::span<const Product> products) override {
    around("matmuls", products[0].y, [&] { inner_->matmuls(products); });
  }
  void matmul_add(Tensor residual, Tensor x, const Weight& w, Tensor bias) override {
    around("matmul_add", residual, [&] { inner_->matmul_add(residual, x, w, bias); });
  }
  void add_normed(Tensor x, Tensor y, const NormArgs& args, float factor) override {
    around("add_normed", x, [&] { inner_->add_normed(x, y, args, factor); });
  }
  void gated_norm(Tensor y, Tensor x, Tensor gate, const NormArgs& args) override {
    around("gated_norm", y, [&] { inner_->gated_norm(y, x, gate, args); });
  }
  void norm_matmul(Tensor y, Tensor x, Tensor normed, const NormArgs& args, const Weight& w, Tensor bias) override {
    around_normed("norm_matmul", args.weight ? normed : Tensor{}, y,
                  [&] { inner_->norm_matmul(y, x, normed, args, w, bias); });
  }

 protected:
  // Called for each op: `call` runs the op, `out` is the tensor that the op writes.
  virtual void around(const char* op, const Tensor& out, const std::function<void()>& call) = 0;
  // Called for an op that begins with a norm: `normed` is the output of the norm; empty: the op has no norm.
  virtual void around_normed(const char* op, const Tensor& /*normed*/, const Tensor& out,
                             const std::function<void()>& call) {
    around(op, out, call);
  }
  Backend& inner() { return *inner_; }

 private:
  std::unique_ptr<Backend> inner_;
};

}  // namespace ingot
