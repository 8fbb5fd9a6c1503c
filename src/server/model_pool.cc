#include "server/model_pool.h"

#include <algorithm>
#include <future>

#include "base/log.h"
#include "base/memory_error.h"
#include "base/system.h"

namespace ingot {

ModelPool::ModelPool(std::vector<ModelSource> sources, const Limits& limits) : limits_(limits) {
  for (ModelSource& source : sources) {
    if (find(source.id)) throw UsageError("two models are called '{}': name them with --alias", printable(source.id));
    entries_.push_back({.source = std::move(source)});
  }
}

void ModelPool::stop() { loader_.stop(); }

ModelPool::Entry* ModelPool::find(const std::string& name) {
  if (name.empty()) return entries_.empty() ? nullptr : &entries_.front();
  for (Entry& entry : entries_) {
    const auto& aliases = entry.source.aliases;
    if (entry.source.id == name || std::ranges::find(aliases, name) != aliases.end()) return &entry;
  }
  return nullptr;
}

bool ModelPool::knows(const std::string& name) const { return find(name) != nullptr; }

void ModelPool::acquire(const std::string& name, Ready ready) {
  std::shared_ptr<ServedModel> model;
  {
    std::lock_guard lock(mutex_);
    Entry* entry = find(name);
    entry->used = Clock::now();
    if (entry->state == ModelState::kLoaded) {
      model = entry->model;
    } else {
      entry->waiting.push_back(std::move(ready));
      if (entry->state == ModelState::kLoading) return;
      entry->state = ModelState::kLoading;
      loader_.post([this, entry] { load(*entry); });
      return;
    }
  }
  ready(std::move(model), "");
}

std::shared_ptr<ServedModel> ModelPool::load_now(const std::string& name) {
  const auto promise = std::make_shared<std::promise<std::pair<std::shared_ptr<ServedModel>, std::string>>>();
  acquire(name, [promise](std::shared_ptr<ServedModel> model, const std::string& failure) {
    promise->set_value({std::move(model), failure});
  });
  auto [model, failure] = promise->get_future().get();
  if (!model) throw Error("{}", failure);
  return std::move(model);
}

// Throws Error if the model is too large even as the only model.
void ModelPool::check_size(const Entry& entry, size_t bytes) const {
  if (limits_.max_bytes > 0 && bytes > limits_.max_bytes)
    throw Error("{} takes {}, but all models together may take {} (--models-memory)", printable(entry.source.id),
                human_bytes(bytes), human_bytes(limits_.max_bytes));
}

// Loads a model and records its exact size.
std::shared_ptr<ServedModel> ModelPool::load_source(Entry& entry) {
  auto model = entry.source.load();
  std::lock_guard lock(mutex_);
  entry.source.bytes = std::max(entry.source.bytes, model->facts().taken_bytes);
  check_size(entry, entry.source.bytes);
  return model;
}

void ModelPool::fill() {
  for (Entry& entry : entries_) {
    {
      std::lock_guard lock(mutex_);
      if (!has_room(entry)) return;
    }
    try {
      auto model = load_source(entry);
      std::lock_guard lock(mutex_);
      if (!has_room(entry)) return;
      put(entry, std::move(model));
    } catch (const MemoryError& error) {
      if (&entry == &entries_.front()) throw;
      return log_warn("{} and the models after it are loaded on request: {}", printable(entry.source.id),
                      error.what());
    }
  }
}

// Call with the mutex held.
void ModelPool::put(Entry& entry, std::shared_ptr<ServedModel> model) {
  entry.state = model ? ModelState::kLoaded : ModelState::kFailed;
  entry.model = std::move(model);
  entry.used = Clock::now();
}

// Runs on the loading thread.
void ModelPool::load(Entry& entry) {
  std::shared_ptr<ServedModel> model;
  std::string failure;
  for (bool must_unload = false; !model && failure.empty();) {
    try {
      make_room(entry, must_unload);
      model = load_source(entry);
      make_room(entry, false);
      log_info("{} is loaded", printable(entry.source.id));
    } catch (const std::exception& error) {
      model.reset();
      const bool lacks_memory = dynamic_cast<const MemoryError*>(&error) || dynamic_cast<const std::bad_alloc*>(&error);
      must_unload = lacks_memory && others_loaded(entry);
      if (!must_unload) failure = error.what();
    }
  }
  if (!model) log_warn("{} could not be loaded: {}", printable(entry.source.id), failure);
  std::vector<Ready> waiting;
  {
    std::lock_guard lock(mutex_);
    put(entry, model);
    waiting.swap(entry.waiting);
  }
  for (const Ready& ready : waiting) ready(model, failure);
}

// Takes the model that has been idle longest, if it has been idle since `before`. The model is unloaded when the caller
// releases it.
std::shared_ptr<ServedModel> ModelPool::take_idle(Clock::time_point before) {
  Entry* oldest = nullptr;
  for (Entry& entry : entries_) {
    const bool idle = entry.state == ModelState::kLoaded && !entry.source.pinned && entry.model.use_count() == 1 &&
                      entry.used < before;
    if (idle && (!oldest || entry.used < oldest->used)) oldest = &entry;
  }
  if (!oldest) return nullptr;
  oldest->state = ModelState::kUnloaded;
  log_info("{} is unloaded", printable(oldest->source.id));
  return std::exchange(oldest->model, nullptr);
}

bool ModelPool::others_loaded(const Entry& wanted) const {
  std::lock_guard lock(mutex_);
  return std::ranges::any_of(entries_, [&](const Entry& e) { return &e != &wanted && e.state == ModelState::kLoaded; });
}

// Call with the mutex held.
bool ModelPool::has_room(const Entry& wanted) const {
  int n_loaded = 0;
  size_t bytes = wanted.source.bytes;
  check_size(wanted, bytes);
  for (const Entry& entry : entries_) {
    if (&entry == &wanted || entry.state != ModelState::kLoaded) continue;
    ++n_loaded;
    bytes += entry.source.bytes;
  }
  return (limits_.max_bytes == 0 || bytes <= limits_.max_bytes) && n_loaded < limits_.max_loaded;
}

// Unloads idle models, the longest idle first, until there is room. `must_unload`: unloads at least one. Throws Error
// if all models stay busy.
void ModelPool::make_room(const Entry& wanted, bool must_unload) {
  for (const auto deadline = Clock::now() + limits_.patience;;) {
    {
      std::shared_ptr<ServedModel> unloaded;  // destroyed without the lock, because its threads end first
      std::lock_guard lock(mutex_);
      if (!must_unload && has_room(wanted)) return;
      unloaded = take_idle(Clock::time_point::max());
      if (unloaded) must_unload = false;
      if (unloaded) continue;
    }
    if (Clock::now() >= deadline) throw Error("all loaded models are busy or pinned; try again soon");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

void ModelPool::tick() {
  if (limits_.idle_ttl.count() == 0) return;
  std::shared_ptr<ServedModel> unloaded;
  std::lock_guard lock(mutex_);
  unloaded = take_idle(Clock::now() - limits_.idle_ttl);
}

std::vector<ModelPool::Row> ModelPool::rows() const {
  std::lock_guard lock(mutex_);
  std::vector<Row> rows;
  for (const Entry& entry : entries_) rows.push_back({entry.source.id, entry.source.aliases, entry.state, entry.model});
  return rows;
}

}  // namespace ingot
