#include "server/models/model_pool.h"

#include <algorithm>
#include <future>
#include <iterator>

#include "base/log.h"
#include "base/memory_error.h"
#include "base/system.h"

namespace ingot {

ModelPool::ModelPool(std::vector<ModelSource> sources, const Limits& limits) : limits_(limits) {
  for (ModelSource& source : sources) {
    if (find(source.id))
      throw UsageError("two models have the name '{}': rename one of their files or directories", printable(source.id));
    entries_.push_back({.source = std::move(source)});
  }
}

void ModelPool::stop() { loader_.stop(); }

ModelPool::Entry* ModelPool::find(const std::string& name) {
  if (name.empty()) return entries_.empty() ? nullptr : &entries_.front();
  constexpr std::string_view kLatest = ":latest";
  for (Entry& entry : entries_) {
    const auto& aliases = entry.source.aliases;
    if (entry.source.id == name || std::ranges::find(aliases, name) != aliases.end()) return &entry;
  }
  return name.ends_with(kLatest) ? find(name.substr(0, name.size() - kLatest.size())) : nullptr;
}

bool ModelPool::knows(const std::string& name) const { return find(name) != nullptr; }

std::optional<std::string> ModelPool::only_of(bool hears) const {
  const auto is_one = [hears](const Entry& entry) { return entry.source.hears == hears; };
  if (std::ranges::count_if(entries_, is_one) != 1) return std::nullopt;
  return std::ranges::find_if(entries_, is_one)->source.id;
}

void ModelPool::acquire(const std::string& name, Ready ready) {
  std::shared_ptr<ServedModel> model;
  {
    std::lock_guard lock(mutex_);
    Entry* entry = find(name);
    entry->used = Clock::now();
    entry->keep.reset();
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
    throw Error("{} needs {}, but all models together may use only {}", printable(entry.source.id), human_bytes(bytes),
                human_bytes(limits_.max_bytes));
}

// Loads a model and records its exact size.
std::shared_ptr<ServedModel> ModelPool::load_source(Entry& entry) {
  auto model = entry.source.load();
  if (limits_.replaces_lost && model->writes())
    model->set_fresh([this, &entry, lost = model.get()](Ready ready) {
      let_go(entry, lost);
      acquire(entry.source.id, std::move(ready));
    });
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
  replacement_failed_ |= entry.is_replacement && !entry.model;
  entry.is_replacement = false;
}

// Removes a model with a lost device from the pool, if it is still there.
void ModelPool::let_go(Entry& entry, const ServedModel* lost) {
  std::lock_guard lock(mutex_);
  if (entry.model.get() != lost) return;
  log_warn("the engine of {} has lost its device; the model is loaded again", printable(entry.source.id));
  lost_.push_back(std::exchange(entry.model, nullptr));
  entry.state = ModelState::kUnloaded;
  entry.is_replacement = true;
}

bool ModelPool::replace_lost() {
  if (!limits_.replaces_lost) return true;
  for (Entry& entry : entries_) {
    std::shared_ptr<ServedModel> model;
    {
      std::lock_guard lock(mutex_);
      model = entry.model;
    }
    if (!model || !model->writes() || !model->lost_device()) continue;
    let_go(entry, model.get());
    acquire(entry.source.id, [](std::shared_ptr<ServedModel>, const std::string&) {});
  }
  std::vector<std::shared_ptr<ServedModel>> gone;  // destroyed without the lock
  std::lock_guard lock(mutex_);
  const auto is_held = [](const auto& model) { return model.use_count() > 1; };
  const auto first = std::partition(lost_.begin(), lost_.end(), is_held);
  gone.assign(std::make_move_iterator(first), std::make_move_iterator(lost_.end()));
  lost_.erase(first, lost_.end());
  return !replacement_failed_;
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

// Call these with the mutex held. The model that take() or take_idle() returns is unloaded when the caller releases it.
bool ModelPool::is_idle(const Entry& entry) const {
  return entry.state == ModelState::kLoaded && !entry.source.pinned && entry.model.use_count() == 1;
}

std::shared_ptr<ServedModel> ModelPool::take(Entry& entry) {
  entry.state = ModelState::kUnloaded;
  log_info("{} is unloaded", printable(entry.source.id));
  return std::exchange(entry.model, nullptr);
}

// Takes the model that has been idle longest.
std::shared_ptr<ServedModel> ModelPool::take_idle() {
  Entry* oldest = nullptr;
  for (Entry& entry : entries_)
    if (is_idle(entry) && (!oldest || entry.used < oldest->used)) oldest = &entry;
  return oldest ? take(*oldest) : nullptr;
}

// The idle time until the model is unloaded.
std::optional<ModelPool::Clock::duration> ModelPool::left(const Entry& entry) const {
  const std::chrono::seconds idle = entry.keep.value_or(limits_.idle_ttl);
  const bool never = entry.keep ? idle.count() < 0 : idle.count() == 0;
  if (never || entry.source.pinned) return std::nullopt;
  return entry.used + idle - Clock::now();
}

ModelPool::Unload ModelPool::unload(const std::string& name) {
  std::shared_ptr<ServedModel> unloaded;  // destroyed without the lock, because its threads end first
  std::lock_guard lock(mutex_);
  Entry& entry = *find(name);
  if (entry.source.pinned) return Unload::kPinned;
  const bool is_loaded = entry.state == ModelState::kLoaded;
  if (!is_loaded && entry.state != ModelState::kLoading) return Unload::kNotLoaded;
  if (!is_loaded || !is_idle(entry)) return Unload::kBusy;
  unloaded = take(entry);
  return Unload::kDone;
}

void ModelPool::keep(const std::string& name, std::chrono::seconds idle) {
  std::lock_guard lock(mutex_);
  find(name)->keep = idle;
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

// Unloads idle models, the longest idle first, until there is room. `must_unload`: unloads at least one model. Throws
// Error if all models stay busy.
void ModelPool::make_room(const Entry& wanted, bool must_unload) {
  for (const auto deadline = Clock::now() + limits_.patience;;) {
    {
      std::shared_ptr<ServedModel> unloaded;  // destroyed without the lock, because its threads end first
      std::lock_guard lock(mutex_);
      if (!must_unload && has_room(wanted)) return;
      unloaded = take_idle();
      if (unloaded) must_unload = false;
      if (unloaded) continue;
    }
    if (Clock::now() >= deadline) throw Error("all loaded models are busy or pinned; try again soon");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

void ModelPool::tick() {
  std::shared_ptr<ServedModel> unloaded;
  std::lock_guard lock(mutex_);
  for (Entry& entry : entries_) {
    const auto time = left(entry);
    if (is_idle(entry) && time && *time < Clock::duration::zero()) {
      unloaded = take(entry);
      return;
    }
  }
}

std::vector<ModelPool::Row> ModelPool::rows() const {
  std::lock_guard lock(mutex_);
  std::vector<Row> rows;
  for (const Entry& entry : entries_)
    rows.push_back({entry.source.id, entry.source.aliases, entry.state, entry.model, left(entry)});
  return rows;
}

}  // namespace ingot
