#include "backend/program.h"

#include <algorithm>
#include <atomic>

#include "backend/backend.h"
#include "backend/blocks/embed.h"
#include "backend/blocks/fork.h"
#include "backend/blocks/head.h"
#include "backend/blocks/pool.h"

namespace ingot {
namespace {

int next_id() {
  static std::atomic<int> id{0};
  return ++id;
}

}  // namespace

Program::Program() : id(next_id()) {}

void Program::lay_out(Buffers& buffers) {
  kv.clear();
  for_each([&](Block& block) {
    if (const BlockPorts ports = block.ports(); ports.head_ids != nullptr)
      n_head_ids = ports.attention != nullptr ? ports.attention->n_heads : ports.n_ids;
    has_fork = has_fork || block.is<ForkBlock>();
  });
  const int n = buffers.limits().max_tokens;
  buffers.keep(x, DType::kF32, n, dim);
  for (RopeTable& rope : ropes) {
    buffers.keep(rope.inv_freq, DType::kF32, 1, rope.rot_dim / 2);
    buffers.keep(rope.angles, DType::kF32, n, rope.rot_dim);
    if (rope.axes.empty()) continue;
    buffers.keep(rope.axis_of, DType::kI32, 1, rope.rot_dim / 2);
    buffers.has_rope_axes();
  }
  if (n_head_ids > 0) buffers.keep(head_ids, DType::kI32, n, n_head_ids);
  if (n_kept > 0) buffers.keep(kept, DType::kF32, n, int64_t{n_kept} * dim);
  if (has_fork) buffers.keep(fork, DType::kF32, n, dim);
  if (source_dim > 0) buffers.keep(source, DType::kF32, buffers.limits().max_source_rows, source_dim);
  if (layer_input_dim > 0) buffers.keep(layer_inputs, DType::kF32, n, layer_input_dim);
  if (streams_dim > 0) buffers.keep(streams, DType::kF32, n, streams_dim);
  if (has_pair) buffers.keep(pair, buffers.act(), n, 2 * int64_t{dim});
  for_each([&](Block& block) {
    buffers.begin_block();
    const BlockPorts ports = block.ports();
    *ports.x = x;
    // The first scratch has the same place in all blocks, so a block can compute the norm of the next block.
    if (ports.normed != nullptr) buffers.scratch_act(*ports.normed, dim);
    if (ports.rope != nullptr)
      ports.rope->angles =
          *ports.rope_table == kNoRope ? Tensor{} : ropes[static_cast<size_t>(*ports.rope_table)].angles;
    if (ports.head_ids != nullptr) *ports.head_ids = head_ids;
    if (ports.kept != nullptr) *ports.kept = kept;
    if (ports.fork != nullptr) *ports.fork = fork;
    if (ports.source != nullptr) *ports.source = source;
    if (ports.layer_inputs != nullptr) *ports.layer_inputs = layer_inputs;
    if (ports.streams != nullptr) *ports.streams = streams;
    if (ports.pair != nullptr) *ports.pair = pair;
    if (ports.kv != nullptr && std::ranges::find(kv, *ports.kv) == kv.end()) kv.push_back(*ports.kv);
    if (ports.states != nullptr) states = *ports.states;
    block.lay_out(buffers);
  });
}

StepLimits Program::place(Backend& backend, const StepLimits& limits) {
  Buffers buffers(backend.act_dtype(), limits);
  lay_out(buffers);
  buffers.allocate(backend);
  lay_out(buffers);
  for (const RopeTable& rope : ropes) {
    backend.upload(rope.inv_freq, rope.frequencies.data());
    if (rope.axis_of) backend.upload(rope.axis_of, rope.axes.data());
  }
  // Without an embedding, x is received for real tokens only. The rows of padding must still be finite.
  if (!blocks.empty() && !blocks.front().is<EmbedBlock>())
    backend.upload(x, std::vector<float>(static_cast<size_t>(x.rows * x.cols)).data());
  if (n_head_ids > 0) {
    std::vector<int32_t> ids(static_cast<size_t>(head_ids.rows * head_ids.cols));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i) % n_head_ids;
    backend.upload(head_ids, ids.data());
  }
  return buffers.limits();
}

void Program::allocate(Backend& backend, const StepLimits& limits) {
  backend.reserve(place(backend, limits));
  backend.prepare_program(*this);
}

int Program::least_kv_heads() const {
  const auto n_heads = [](const KvCache* one) { return one->shape.n_kv_heads; };
  return kv.empty() ? 0 : n_heads(*std::ranges::min_element(kv, {}, n_heads));
}

bool Program::has_logits() const { return !blocks.empty() && blocks.back().is<HeadBlock>(); }

Tensor Program::output(int n_tokens, int n_seqs, int n_logits) const {
  if (const auto* head = blocks.back().as<HeadBlock>()) return head->logits.slice_rows(0, n_logits);
  const PoolBlock& pool = blocks.back().get<PoolBlock>();
  return pool.pools ? pool.pooled.slice_rows(0, n_seqs) : x.slice_rows(0, n_tokens);
}

}  // namespace ingot
