// nlohmann's JSON values with a destructor and comparisons that allocate no memory. Include this header instead of
// <nlohmann/json.hpp> (scripts/layers.py checks that): every file must see the same destructor.
//
// nlohmann's own destructor moves all children of a value to a new vector, so that deep values need no deep recursion.
// A destructor cannot report that memory is short: the process would end. This destructor is not recursive either, but
// it keeps its path inside the value. While a child is being destroyed, the child's place holds the parent.
//
// An assertion of nlohmann's that does not hold ends the process, with one exception: memory may run out while a value
// becomes a container. Such a value has no content and is only destroyed.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>

namespace ingot {

inline void on_json_fault(const char* condition) {
  if (std::string_view(condition).starts_with("m_type != value_t::")) return;
  std::fprintf(stderr, "JSON: %s does not hold\n", condition);
  std::abort();
}

}  // namespace ingot

#define JSON_ASSERT(condition) ((condition) ? void(0) : ingot::on_json_fault(#condition))
#include <nlohmann/json.hpp>

namespace ingot {

// Destroys what a value owns, without allocating.
template <class Json>
class JsonDismantler {
 public:
  using Array = typename Json::array_t;
  using Object = typename Json::object_t;

  static void destroy(Array* array) {
    if (array == nullptr) return;
    for (; !array->empty(); array->pop_back()) drop(std::exchange(array->back(), nullptr));
    release(array);
  }
  static void destroy(Object* object) {
    if (object == nullptr) return;
    for (; !object->empty(); pop_last(*object)) drop(std::exchange(last_of(*object), nullptr));
    release(object);
  }
  template <class T>
  static void release(T* owned) {
    if (owned == nullptr) return;
    std::destroy_at(owned);
    std::allocator<T>().deallocate(owned, 1);
  }

 private:
  static void drop(Json value) {
    Json parent;  // the place of its last child holds the parent's own parent
    for (;;) {
      if (Json* last = last_child(value)) {
        last->swap(parent);
        value.swap(parent);  // now `value` is the child, and `parent` the value
        continue;
      }
      value = nullptr;  // has no children, so this allocates nothing
      Json* place = last_child(parent);
      if (place == nullptr) return;
      value.swap(*place);  // now `value` is the grandparent
      pop_last(parent);
      value.swap(parent);
    }
  }

  static Json* last_child(Json& value) {
    if (auto* array = value.template get_ptr<Array*>(); array && !array->empty()) return &array->back();
    if (auto* object = value.template get_ptr<Object*>(); object && !object->empty()) return &last_of(*object);
    return nullptr;
  }
  static Json& last_of(Object& object) { return std::prev(object.end())->second; }
  static void pop_last(Object& object) { object.erase(std::prev(object.end())); }
  static void pop_last(Json& value) {
    if (auto* array = value.template get_ptr<Array*>()) return array->pop_back();
    pop_last(value.template get_ref<Object&>());
  }
};

}  // namespace ingot

// Called for each value that is destroyed. The members are those of nlohmann's union: pointers that the value owns.
template <>
inline void nlohmann::json::json_value::destroy(nlohmann::json::value_t type) {
  using Type = nlohmann::json::value_t;
  using Dismantler = ingot::JsonDismantler<nlohmann::json>;
  if (type == Type::array) Dismantler::destroy(array);
  if (type == Type::object) Dismantler::destroy(object);
  if (type == Type::string) Dismantler::release(string);
  if (type == Type::binary) Dismantler::release(binary);
}
template <>
inline void nlohmann::ordered_json::json_value::destroy(nlohmann::ordered_json::value_t type) {
  using Type = nlohmann::ordered_json::value_t;
  using Dismantler = ingot::JsonDismantler<nlohmann::ordered_json>;
  if (type == Type::array) Dismantler::destroy(array);
  if (type == Type::object) Dismantler::destroy(object);
  if (type == Type::string) Dismantler::release(string);
  if (type == Type::binary) Dismantler::release(binary);
}

// nlohmann compares a value and a literal by making a value of the literal, in functions that may not throw. These
// functions allocate nothing.
namespace nlohmann {

template <class Json>
bool is_json_text(const Json& json, const char* text) noexcept {
  const auto* string = json.template get_ptr<const std::string*>();
  return string != nullptr && *string == text;
}
inline bool operator==(const json& a, const char* b) noexcept { return is_json_text(a, b); }
inline bool operator==(const char* a, const json& b) noexcept { return is_json_text(b, a); }
inline bool operator!=(const json& a, const char* b) noexcept { return !is_json_text(a, b); }
inline bool operator!=(const char* a, const json& b) noexcept { return !is_json_text(b, a); }
inline bool operator==(const ordered_json& a, const char* b) noexcept { return is_json_text(a, b); }
inline bool operator==(const char* a, const ordered_json& b) noexcept { return is_json_text(b, a); }
inline bool operator!=(const ordered_json& a, const char* b) noexcept { return !is_json_text(a, b); }
inline bool operator!=(const char* a, const ordered_json& b) noexcept { return !is_json_text(b, a); }

}  // namespace nlohmann
