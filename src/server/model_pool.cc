#include "server/model_pool.h"

#include <algorithm>
#include <future>

#include "base/error.h"
#include "base/log.h"

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
  std::promise<std::shared_ptr<ServedModel>> promise;
  acquire(name, [&](std::shared_ptr<ServedModel> model, const std::string& failure) {
    if (model) {
      promise.set_value(std::move(model));
    } else {
      promise.set_exception(std::make_exception_ptr(Error("{}", failure)));
    }
  });
  return promise.get_future().get();
}

// On the loading thread.
void ModelPool::load(Entry& entry) {
  std::shared_ptr<ServedModel> model;
  std::string failure;
  if (!make_room(entry)) {
    failure = "every model that is loaded is busy or pinned; try again soon";
  } else {
    try {
      model = entry.source.load();
      log_info("{} is loaded", printable(entry.source.id));
    } catch (const std::exception& error) {
      failure = error.what();
      log_warn("{} could not be loaded: {}", printable(entry.source.id), failure);
    }
  }
  std::vector<Ready> waiting;
  {
    std::lock_guard lock(mutex_);
    entry.model = model;
    entry.state = model ? ModelState::kLoaded : ModelState::kFailed;
    entry.used = Clock::now();
    waiting.swap(entry.waiting);
  }
  for (const Ready& ready : waiting) ready(model, failure);
}

// The loaded model that has been idle longest, and since before that; it is unloaded when the caller lets go of it.
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

bool ModelPool::make_room(const Entry& wanted) {
  for (const auto deadline = Clock::now() + limits_.patience;;) {
    {
      std::shared_ptr<ServedModel> goes;  // destroyed outside of the lock: its threads end first
      std::lock_guard lock(mutex_);
      const auto n_loaded = std::ranges::count_if(
          entries_, [&](const Entry& e) { return &e != &wanted && e.state == ModelState::kLoaded; });
      if (n_loaded < limits_.max_loaded) return true;
      goes = take_idle(Clock::time_point::max());
      if (goes) continue;
    }
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

void ModelPool::tick() {
  if (limits_.idle_ttl.count() == 0) return;
  std::shared_ptr<ServedModel> goes;
  std::lock_guard lock(mutex_);
  goes = take_idle(Clock::now() - limits_.idle_ttl);
}

std::vector<ModelPool::Row> ModelPool::rows() const {
  std::lock_guard lock(mutex_);
  std::vector<Row> rows;
  for (const Entry& entry : entries_) rows.push_back({entry.source.id, entry.source.aliases, entry.state, entry.model});
  return rows;
}

}  // namespace ingot
