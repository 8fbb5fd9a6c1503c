// The metadata of a model file: keys in file order, with typed getters. If the key is missing, get_* throws Error and
// find_* returns nullopt. Both throw Error if the value is of another kind or does not fit; the message names the file,
// the key, what was expected and what was found: "model.gguf: metadata 'llama.block_count': expected u32, got str". All
// strings are views of the mapped file and may hold any bytes. The strings are valid as long as the Gguf.
#pragma once
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/name_index.h"
#include "io/value.h"

namespace ingot {

class Metadata {
 public:
  struct Entry {
    std::string_view key;
    Value value;
    uint64_t offset = 0;  // of the entry, in its file
  };
  template <class T>
  using List = std::vector<T>;
  template <class T>
  using Maybe = std::optional<T>;
  using Key = std::string_view;

  Metadata() = default;
  // `source` is the file's name, for messages. Throws Error if a key occurs twice.
  Metadata(std::string source, std::vector<Entry> entries);

  // Replaces a value, or adds a key. bytes: the value as a file stores it, or the text.
  void set(std::string_view key, ValueType type, std::string bytes);

  const std::string& source() const { return source_; }
  std::span<const Entry> entries() const { return entries_; }  // in file order
  const Value* find(Key key) const;
  bool contains(Key key) const { return find(key) != nullptr; }

  // Integers: any integer type whose value fits. Floats: f32 or f64, finite.
  uint32_t get_u32(Key key) const { return get<uint32_t>(key); }
  float get_f32(Key key) const { return get<float>(key); }
  std::string_view get_string(Key key) const { return get<std::string_view>(key); }

  Maybe<uint32_t> find_u32(Key key) const { return find_as<uint32_t>(key); }
  Maybe<uint64_t> find_u64(Key key) const { return find_as<uint64_t>(key); }
  Maybe<int32_t> find_i32(Key key) const { return find_as<int32_t>(key); }
  Maybe<int64_t> find_i64(Key key) const { return find_as<int64_t>(key); }
  Maybe<float> find_f32(Key key) const { return find_as<float>(key); }
  Maybe<bool> find_bool(Key key) const { return find_as<bool>(key); }
  Maybe<std::string_view> find_string(Key key) const { return find_as<std::string_view>(key); }

  // Whole arrays. The same rules apply to each element, except that an f32 may be infinite (but not NaN).
  List<uint32_t> get_u32s(Key key) const { return get_list<uint32_t>(key); }
  List<std::string_view> get_strings(Key key) const { return get_list<std::string_view>(key); }

  Maybe<List<int32_t>> find_i32s(Key key) const { return find_list<int32_t>(key); }
  Maybe<List<float>> find_f32s(Key key) const { return find_list<float>(key); }
  Maybe<List<std::string_view>> find_strings(Key key) const { return find_list<std::string_view>(key); }

  // Per-layer values, such as head_count_kv. The file has one scalar for all layers or an array with one element for
  // each layer; the result always has n_layers values.
  Maybe<List<uint32_t>> find_u32_per_layer(Key key, size_t n_layers) const {
    return find_per_layer<uint32_t>(key, n_layers);
  }
  Maybe<List<float>> find_f32_per_layer(Key key, size_t n_layers) const { return find_per_layer<float>(key, n_layers); }
  Maybe<List<bool>> find_bool_per_layer(Key key, size_t n_layers) const { return find_per_layer<bool>(key, n_layers); }

  // Makes an Error about this key, for checks that only the caller can do: "FILE: metadata 'KEY': MESSAGE".
  template <class... Args>
  Error error(Key key, fmt::format_string<Args...> format, Args&&... args) const {
    return Error("{}: metadata '{}': {}", printable(source_), printable(key),
                 fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  template <class T>
  Maybe<T> find_as(Key key) const;
  template <class T>
  Maybe<List<T>> find_list(Key key) const;
  template <class T>
  Maybe<List<T>> find_per_layer(Key key, size_t n_layers) const;

  template <class T>
  T get(Key key) const {
    return require(key, find_as<T>(key));
  }
  template <class T>
  List<T> get_list(Key key) const {
    return require(key, find_list<T>(key));
  }
  template <class T>
  T require(Key key, Maybe<T> value) const {
    if (!value) throw Error("{}: metadata '{}' is missing", printable(source_), printable(key));
    return *std::move(value);
  }
  template <class T>
  T convert(Key key, const Value& value) const;

  std::string source_;
  std::vector<Entry> entries_;
  std::shared_ptr<std::list<std::string>> own_ =
      std::make_shared<std::list<std::string>>();  // keys and values of set()
  NameIndex index_;
};

}  // namespace ingot
