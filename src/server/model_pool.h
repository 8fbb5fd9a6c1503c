// ModelPool: the models that a server knows, of which some are loaded. A request for one that is not has it loaded,
// once, however many ask; where there is no room (of their number, of the memory that they may take together, or of the
// device's own: a load that ends with MemoryError) the one that has been idle longest goes. A model that answers
// somebody never goes, nor does one that is pinned.
#pragma once
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/served_model.h"
#include "server/workers.h"

namespace ingot {

enum class ModelState { kUnloaded, kLoading, kLoaded, kFailed };

struct ModelSource {
  std::string id;
  std::vector<std::string> aliases;
  std::function<std::shared_ptr<ServedModel>()> load;  // started; throws Error
  bool pinned = false;
  size_t bytes = 0;  // that it takes at least; once loaded, ModelFacts::taken_bytes is known
};

class ModelPool {
 public:
  using Clock = std::chrono::steady_clock;
  struct Limits {
    int max_loaded = 1 << 20;
    size_t max_bytes = 0;                      // of all that are loaded together; 0: as the devices have
    std::chrono::seconds idle_ttl{0};          // unloaded when idle that long; 0: never
    std::chrono::milliseconds patience{2000};  // for one that is busy to become idle, where another is to be loaded
  };
  struct Row {
    std::string id;
    std::vector<std::string> aliases;
    ModelState state;
    std::shared_ptr<ServedModel> model;  // when loaded
  };
  // The model, or why not.
  using Ready = std::function<void(std::shared_ptr<ServedModel> model, const std::string& failure)>;

  ModelPool(std::vector<ModelSource> sources, const Limits& limits);
  ~ModelPool() { stop(); }

  bool knows(const std::string& name) const;
  size_t size() const { return entries_.size(); }
  // Calls back at once, or from the loading thread when the model has been loaded. `name` must be known; empty is the
  // first.
  void acquire(const std::string& name, Ready ready);
  // Before there are requests: loads one after another until there is no room for the next. Throws Error when one
  // cannot be loaded.
  void fill();
  // Loads one by hand and waits. Throws Error.
  std::shared_ptr<ServedModel> load_now(const std::string& name);
  std::vector<Row> rows() const;
  void tick();  // now and then: unloads what has been idle too long
  void stop();  // no more loading

 private:
  struct Entry {
    ModelSource source;
    ModelState state = ModelState::kUnloaded;
    std::shared_ptr<ServedModel> model;
    std::vector<Ready> waiting;
    Clock::time_point used{};
  };

  Entry* find(const std::string& name);
  const Entry* find(const std::string& name) const { return const_cast<ModelPool*>(this)->find(name); }
  void load(Entry& entry);
  std::shared_ptr<ServedModel> load_source(Entry& entry);
  void check_size(const Entry& entry, size_t bytes) const;
  void put(Entry& entry, std::shared_ptr<ServedModel> model);
  std::shared_ptr<ServedModel> take_idle(Clock::time_point before);
  bool others_loaded(const Entry& wanted) const;
  bool has_room(const Entry& wanted) const;
  void make_room(const Entry& wanted, bool must_unload);

  const Limits limits_;
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
  Workers loader_{1};
};

}  // namespace ingot
