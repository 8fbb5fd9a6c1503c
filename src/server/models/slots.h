// Slots: a model's sequences as llama.cpp's clients see them. Every sequence runs in a slot. A slot stores the tokens
// of the last sequence that ended there, while the prefix cache holds their keys and values. So clients can save these
// tokens to a file, restore them and erase them by the slot's number.
#pragma once
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/prefix_cache.h"

namespace ingot {

class Engine;

class Slots {
 public:
  struct History {
    CacheKey root;  // of the salt
    std::vector<int32_t> tokens;
  };

  explicit Slots(int n) : slots_(static_cast<size_t>(n)) {}
  int size() const { return static_cast<int>(slots_.size()); }
  // The slot for a prompt: an idle slot whose history the prompt continues, otherwise the slot unused for longest.
  int choose(const std::vector<int32_t>& prompt);
  void begin(int slot);
  void end(int slot, History history);
  void set(int slot, History history);
  History history(int slot) const;
  std::vector<bool> busy() const;

 private:
  struct Slot {
    History history;
    int n_running = 0;
    uint64_t used_at = 0;
  };

  mutable std::mutex mutex_;
  std::vector<Slot> slots_;
  uint64_t n_uses_ = 0;
};

// The folder for saved slots, and their model.
struct SlotFiles {
  std::string folder;  // empty: slots cannot be saved
  std::string model;   // Checkpoint::digest()
};

struct SlotCopy {
  size_t n_tokens = 0, n_bytes = 0;
};

// These functions block until the engine has copied the blocks, a piece between two steps. They throw Error, or
// ApiError for a file that does not fit the model.
SlotCopy save_slot(Engine& engine, Slots& slots, int slot, const SlotFiles& files, const std::string& name);
SlotCopy restore_slot(Engine& engine, Slots& slots, int slot, const SlotFiles& files, const std::string& name);
size_t erase_slot(Engine& engine, Slots& slots, int slot);  // returns the tokens of the slot's history

}  // namespace ingot
