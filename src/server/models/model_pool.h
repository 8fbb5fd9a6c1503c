// ModelPool: the models that a server offers, loaded or not. A model that is not loaded is loaded once for all waiting
// requests. If there is no room, the pool unloads the model that has been idle longest. Room may be limited by the
// number of models, by the memory of all models together, or by the device (the load ends with MemoryError). A model
// that is answering a request is never unloaded, nor is a pinned model. A name may end in ":latest", as Ollama's names
// do.
#pragma once
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "server/models/served_model.h"
#include "base/workers.h"

namespace ingot {

enum class ModelState { kUnloaded, kLoading, kLoaded, kFailed };

struct ModelSource {
  std::string id;
  std::vector<std::string> aliases;
  std::function<std::shared_ptr<ServedModel>()> load;  // returns a started model; throws Error
  bool pinned = false;
  bool hears = false;  // a speech model
  size_t bytes = 0;  // the model's minimum memory; exact once loaded (ModelFacts::taken_bytes)
};

class ModelPool {
 public:
  using Clock = std::chrono::steady_clock;
  struct Limits {
    int max_loaded = 1 << 20;
    size_t max_bytes = 0;                      // for all loaded models together; 0: limited by the devices only
    std::chrono::seconds idle_ttl{0};          // unload a model after this idle time; 0: never
    std::chrono::milliseconds patience{2000};  // how long a load waits for a busy model to become idle
    bool replaces_lost = false;                // reload a model when its engine has lost its device
  };
  struct Row {
    std::string id;
    std::vector<std::string> aliases;
    ModelState state;
    std::shared_ptr<ServedModel> model;  // null: not loaded
    std::optional<Clock::duration> left;  // idle time until the model is unloaded; none: never
  };
  enum class Unload { kDone, kNotLoaded, kBusy, kPinned };
  // Called with the model, or with null and the reason.
  using Ready = std::function<void(std::shared_ptr<ServedModel> model, const std::string& failure)>;

  ModelPool(std::vector<ModelSource> sources, const Limits& limits);
  ~ModelPool() { stop(); }

  bool knows(const std::string& name) const;
  size_t size() const { return entries_.size(); }
  // The name of the only speech model, or of the only other model; nothing if there are none or several.
  std::optional<std::string> only_of(bool hears) const;
  // Calls `ready` at once, or from the loading thread when the model has been loaded. `name` must be known. An empty
  // name means the first model.
  void acquire(const std::string& name, Ready ready);
  // Call before the first request. Loads models in order until there is no room for the next. Throws Error if a model
  // cannot be loaded.
  void fill();
  // Loads a model on request of the operator, and waits. Throws Error.
  std::shared_ptr<ServedModel> load_now(const std::string& name);
  // Unloads a model now, on request of a client. `name` must be known, here and below.
  Unload unload(const std::string& name);
  // Overrides Limits::idle_ttl for the model until its next request. Negative: no limit.
  void keep(const std::string& name, std::chrono::seconds idle);
  // With Limits::replaces_lost: reloads the models whose engines have lost their devices. Returns false if a reload
  // failed.
  bool replace_lost();
  std::vector<Row> rows() const;
  void tick();  // call periodically: unloads models that have been idle too long
  void stop();  // ends all loading

 private:
  struct Entry {
    ModelSource source;
    ModelState state = ModelState::kUnloaded;
    std::shared_ptr<ServedModel> model;
    std::vector<Ready> waiting;
    Clock::time_point used{};
    std::optional<std::chrono::seconds> keep;  // as set by keep()
    bool is_replacement = false;               // the model is being loaded in place of a lost one
  };

  Entry* find(const std::string& name);
  const Entry* find(const std::string& name) const { return const_cast<ModelPool*>(this)->find(name); }
  void load(Entry& entry);
  std::shared_ptr<ServedModel> load_source(Entry& entry);
  void check_size(const Entry& entry, size_t bytes) const;
  void put(Entry& entry, std::shared_ptr<ServedModel> model);
  void let_go(Entry& entry, const ServedModel* lost);
  bool is_idle(const Entry& entry) const;
  std::optional<Clock::duration> left(const Entry& entry) const;
  std::shared_ptr<ServedModel> take(Entry& entry);
  std::shared_ptr<ServedModel> take_idle();
  bool others_loaded(const Entry& wanted) const;
  bool has_room(const Entry& wanted) const;
  void make_room(const Entry& wanted, bool must_unload);

  const Limits limits_;
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
  // Models with lost devices. They stay here until no request holds them, because an engine must not be destroyed on
  // its own thread.
  std::vector<std::shared_ptr<ServedModel>> lost_;
  bool replacement_failed_ = false;
  Workers loader_{1};
};

}  // namespace ingot
