// LruMap: a map of at most `max_size` entries; put() into a full map drops the least recently used entry.
#pragma once
#include <cstddef>
#include <list>
#include <map>
#include <utility>

#include "base/check.h"

namespace ingot {

template <class Key, class Value>
class LruMap {
 public:
  explicit LruMap(size_t max_size) : max_size_(max_size) { CHECK_GT(max_size, 0u); }

  // Null when the key is absent. The pointers of find() and put() are valid until the next put().
  Value* find(const Key& key) {
    const auto found = places_.find(key);
    if (found == places_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found->second);
    return &found->second->second;
  }

  // The key must not be in the map yet.
  Value* put(const Key& key, Value value) {
    CHECK(!places_.contains(key));
    if (entries_.size() == max_size_) {
      places_.erase(entries_.back().first);
      entries_.pop_back();
    }
    std::list<std::pair<Key, Value>> added;  // of one entry; nothing below can fail once places_ has the key
    added.emplace_front(key, std::move(value));
    places_.emplace(key, added.begin());
    entries_.splice(entries_.begin(), added);
    return &entries_.front().second;
  }

  size_t size() const { return entries_.size(); }

 private:
  const size_t max_size_;
  std::list<std::pair<Key, Value>> entries_;  // the most recently used entry first
  std::map<Key, typename std::list<std::pair<Key, Value>>::iterator> places_;
};

}  // namespace ingot
