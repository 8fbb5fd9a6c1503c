// LruMap: the entries that were used last, up to a number of them; one more drops the one that was unused for longest.
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
  explicit LruMap(size_t most) : most_(most) { CHECK_GT(most, 0u); }

  // Null where there is none. Either way a pointer is good until the next put().
  Value* find(const Key& key) {
    const auto found = places_.find(key);
    if (found == places_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found->second);
    return &found->second->second;
  }

  // The key must be a new one.
  Value* put(const Key& key, Value value) {
    CHECK(!places_.contains(key));
    if (entries_.size() == most_) {
      places_.erase(entries_.back().first);
      entries_.pop_back();
    }
    entries_.emplace_front(key, std::move(value));
    places_.emplace(key, entries_.begin());
    return &entries_.front().second;
  }

  size_t size() const { return entries_.size(); }

 private:
  const size_t most_;
  std::list<std::pair<Key, Value>> entries_;  // the one used last comes first
  std::map<Key, typename std::list<std::pair<Key, Value>>::iterator> places_;
};

}  // namespace ingot
