// Block: one typed step of a model, such as attention or a feed-forward. The kinds of blocks are in blocks/, one file
// each. Any struct is a block that has
//   Tensor x;                      the residual stream, in and out: [max_tokens, dim]
//   void lay_out(Buffers&);        requests the buffers that only the block itself reads
// and a function run_block(const T&, Backend&), the block's body: a list of ops.
// So no list names all kinds. A program (program.h) connects its blocks through members with known names, BlockPorts.
#pragma once
#include <memory>
#include <span>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "backend/ops.h"
#include "base/check.h"

namespace ingot {

class Backend;
class Buffers;

inline constexpr int kNoRope = -1;  // the rope_table of attention without rope

// The members of a block's struct that a program or a model sets. Null: the struct has no member of that name.
struct BlockPorts {
  Tensor* x = nullptr;
  // Blocks that begin with a norm of x. The block before may compute the norm, into `normed`, if it ends with a sum
  // over ranks: then follows_sum is set. normed: [max_tokens, dim], the first scratch of all blocks.
  bool* follows_sum = nullptr;
  NormArgs* norm = nullptr;
  Tensor* normed = nullptr;
  int* rope_table = nullptr;  // index in Program::ropes, or kNoRope
  RopeArgs* rope = nullptr;
  bool* beside = nullptr;  // the block reads `fork`, a copy of x, in place of x
  Tensor* fork = nullptr;
  Tensor *head_ids = nullptr, *kept = nullptr, *pair = nullptr, *source = nullptr,
         *layer_inputs = nullptr, *streams = nullptr;  // the program's
  int n_ids = 0;  // of head_ids, of blocks without attention
  KvCache** kv = nullptr;
  AttentionArgs* attention = nullptr;  // its `layer` is an index in the KV cache
  bool* only_keys = nullptr;           // the block writes keys and values to the cache, and leaves x as it is
  StateCache** states = nullptr;
  int* first_state = nullptr;  // index of its first buffer in the state cache
};

class Block {
 public:
  template <class T>
  requires(!std::is_same_v<std::remove_cvref_t<T>, Block>) Block(T block)
      : held_(std::make_unique<Held<T>>(std::move(block))) {}  // NOLINT: a struct of a kind is a block
  Block(const Block& other) : held_(other.held_->copy()) {}
  Block(Block&&) = default;
  Block& operator=(Block other) {
    held_ = std::move(other.held_);
    return *this;
  }

  template <class T>
  bool is() const {
    return held_->kind == typeid(T);
  }
  // Null if the block is of another kind.
  template <class T>
  T* as() {
    return is<T>() ? &static_cast<Held<T>&>(*held_).block : nullptr;
  }
  template <class T>
  const T* as() const {
    return is<T>() ? &static_cast<const Held<T>&>(*held_).block : nullptr;
  }
  template <class T>
  T& get() {
    CHECK(is<T>());
    return static_cast<Held<T>&>(*held_).block;
  }
  template <class T>
  const T& get() const {
    CHECK(is<T>());
    return static_cast<const Held<T>&>(*held_).block;
  }
  void* data() { return held_->data(); }  // the struct

  void lay_out(Buffers& buffers) { held_->lay_out(buffers); }
  void run(Backend& backend) const { held_->run(backend); }
  BlockPorts ports() { return held_->ports(); }
  // The place for a norm that the block's last op, a sum over ranks, may compute; null: it cannot.
  NormArgs* norm_after_sum() { return held_->norm_after_sum(); }
  std::span<Block> inside() { return held_->inside(); }  // of a block that consists of blocks

 private:
  struct Any {
    explicit Any(const std::type_info& of_kind) : kind(of_kind) {}
    virtual ~Any() = default;
    virtual std::unique_ptr<Any> copy() const = 0;
    virtual void* data() = 0;
    virtual void lay_out(Buffers& buffers) = 0;
    virtual void run(Backend& backend) const = 0;
    virtual BlockPorts ports() = 0;
    virtual NormArgs* norm_after_sum() = 0;
    virtual std::span<Block> inside() = 0;
    const std::type_info& kind;  // equal in libingot-cuda.so, which has its own copy of this code
  };

  template <class T>
  struct Held final : Any {
    explicit Held(T of_kind) : Any(typeid(T)), block(std::move(of_kind)) {}
    std::unique_ptr<Any> copy() const override { return std::make_unique<Held>(block); }
    void* data() override { return &block; }
    void lay_out(Buffers& buffers) override { block.lay_out(buffers); }
    void run(Backend& backend) const override { run_block(block, backend); }
    BlockPorts ports() override;
    NormArgs* norm_after_sum() override {
      if constexpr (requires { block.join.next_norm; }) return block.join.norm_after_sum();
      if constexpr (requires { block.sums; }) return block.sums ? &block.next_norm : nullptr;
      return nullptr;
    }
    std::span<Block> inside() override {
      if constexpr (requires { block.blocks; }) return block.blocks;
      return {};
    }
    T block;
  };

  std::unique_ptr<Any> held_;
};

template <class T>
BlockPorts Block::Held<T>::ports() {
  BlockPorts p;
  if constexpr (requires { block.x; }) p.x = &block.x;
  if constexpr (requires { block.follows_sum; })
    p.follows_sum = &block.follows_sum, p.norm = &block.norm, p.normed = &block.normed;
  if constexpr (requires { block.rope_table; }) p.rope_table = &block.rope_table, p.rope = &block.rope;
  if constexpr (requires { block.beside; }) p.beside = &block.beside;
  if constexpr (requires { block.fork; }) p.fork = &block.fork;
  if constexpr (requires { block.head_ids; }) p.head_ids = &block.head_ids;
  if constexpr (requires { block.kept; }) p.kept = &block.kept;
  if constexpr (requires { block.pair; }) p.pair = &block.pair;
  if constexpr (requires { block.source; }) p.source = &block.source;
  if constexpr (requires { block.layer_inputs; }) p.layer_inputs = &block.layer_inputs;
  if constexpr (requires { block.streams; }) p.streams = &block.streams;
  if constexpr (requires { block.n_ids; }) p.n_ids = block.n_ids;
  if constexpr (requires { block.kv; }) p.kv = &block.kv, p.attention = &block.attention;
  if constexpr (requires { block.only_keys; }) p.only_keys = &block.only_keys;
  if constexpr (requires { block.states; }) p.states = &block.states, p.first_state = &block.first_state;
  return p;
}

}  // namespace ingot
