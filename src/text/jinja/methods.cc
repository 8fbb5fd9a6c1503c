// The methods of list, tuple and dict. Hugging Face's sandbox refuses the methods that change a value. append, extend,
// insert, pop, update and setdefault are still offered, because published templates use them, and all values belong to
// one rendering.
#include <algorithm>

#include "text/jinja/objects.h"
#include "text/jinja/runtime.h"

namespace ingot::jinja {
namespace {

// Called before a change. The value may contain itself after the change, so the Runtime empties it at the end.
void keep(Runtime& rt, const Value& self) {
  bool& kept = self.is_seq() ? self.seq().kept : self.dict().kept;
  if (!kept) rt.keep(self);
  kept = true;
}

void insert_at(Runtime& rt, const Value& self, size_t at, const Value& item) {
  Seq& seq = self.seq();
  rt.meter.items(1);
  if (seq.items.size() >= Meter::kMaxItems) rt.meter.items(seq.items.size() + 1);
  if (item.is_seq() || item.is_dict() || item.is_object()) rt.meter.nested(item.depth() + 1);
  keep(rt, self);
  seq.depth = std::max(seq.depth, item.depth() + 1);
  seq.items.insert(seq.items.begin() + static_cast<ptrdiff_t>(at), item);
}

Value append(Runtime& rt, const Value& self, const Params& p) {
  insert_at(rt, self, self.items().size(), *p[0]);
  return Value::none();
}

Value extend(Runtime& rt, const Value& self, const Params& p) {
  for (const Value& item : rt.iterate(*p[0])) insert_at(rt, self, self.items().size(), item);
  return Value::none();
}

Value insert(Runtime& rt, const Value& self, const Params& p) {
  const auto n = static_cast<Int>(self.items().size());
  Int at = p.integer(0, 0);
  if (at < 0) at = std::max<Int>(at + n, 0);
  rt.meter.spend(self.items().size() / 8);
  insert_at(rt, self, static_cast<size_t>(std::min(at, n)), *p[1]);
  return Value::none();
}

Value pop_item(Runtime& rt, const Value& self, const Params& p) {
  const auto n = static_cast<Int>(self.items().size());
  Int at = p.integer(0, -1);
  if (at < 0) at += n;
  if (at < 0 || at >= n) throw Error("{}", n == 0 ? "pop from empty list" : "pop index out of range");
  rt.meter.spend(self.items().size() / 8);
  keep(rt, self);
  auto place = self.seq().items.begin() + static_cast<ptrdiff_t>(at);
  Value out = *place;
  self.seq().items.erase(place);
  return out;
}

Value copy_list(Runtime& rt, const Value& self, const Params&) { return rt.list(self.items()); }

Value count(Runtime& rt, const Value& self, const Params& p) {
  Int n = 0;
  for (const Value& item : self.items()) n += item.same(*p[0]) || equal(item, *p[0], rt.meter);
  return Value::integer(n);
}

Value index(Runtime& rt, const Value& self, const Params& p) {
  const std::vector<Value>& items = self.items();
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].same(*p[0]) || equal(items[i], *p[0], rt.meter)) return Value::integer(static_cast<Int>(i));
  }
  throw Error("the value is not in the list");
}

template <DictView::What kWhat>
Value view(Runtime&, const Value& self, const Params&) {
  return Value::object(std::make_shared<DictView>(self.dict_ptr(), kWhat));
}

Value get(Runtime& rt, const Value& self, const Params& p) {
  const Value* found = self.dict().find(*p[0], rt.meter);
  return found != nullptr ? *found : p[1] != nullptr ? *p[1] : Value::none();
}

Value copy_dict(Runtime& rt, const Value& self, const Params&) {
  auto copy = std::make_shared<Dict>();
  for (const auto& [key, value] : self.dict().entries()) copy->set(key, value, rt.meter);
  return Value::dict(std::move(copy));
}

Value pop_key(Runtime& rt, const Value& self, const Params& p) {
  const Value* found = self.dict().find(*p[0], rt.meter);
  if (found == nullptr && p[1] == nullptr) throw Error("pop: the key is not in the dictionary");
  Value out = found != nullptr ? *found : *p[1];
  rt.meter.spend(self.dict().entries().size());
  if (found != nullptr) self.dict().erase(*p[0], rt.meter);
  return out;
}

Value set_default(Runtime& rt, const Value& self, const Params& p) {
  const Value* found = self.dict().find(*p[0], rt.meter);
  if (found != nullptr) return *found;
  const Value made = p[1] != nullptr ? *p[1] : Value::none();
  keep(rt, self);
  self.dict().set(*p[0], made, rt.meter);
  return made;
}

Value update(Runtime& rt, const Value& self, const Params& p) {
  keep(rt, self);
  if (p.all->positional.size() > 1) throw Error("update() takes at most 1 argument");
  if (!p.all->positional.empty()) {
    const Value& from = p.all->positional[0];
    if (!from.is_dict()) throw Error("update() takes a dictionary, not {}", from.type_name());
    const std::vector<Dict::Entry> entries = from.dict().entries();
    for (const auto& [key, value] : entries) self.dict().set(key, value, rt.meter);
  }
  for (const auto& [name, value] : p.all->keyword) self.dict().set(Value::string(name), value, rt.meter);
  return Value::none();
}

constexpr Builtin kListMethods[] = {
    {"append", append, 1, {"object"}}, {"copy", copy_list},
    {"count", count, 1, {"value"}},    {"extend", extend, 1, {"iterable"}},
    {"index", index, 1, {"value"}},    {"insert", insert, 2, {"index", "object"}},
    {"pop", pop_item, 0, {"index"}},
};

constexpr Builtin kTupleMethods[] = {{"count", count, 1, {"value"}}, {"index", index, 1, {"value"}}};

constexpr Builtin kDictMethods[] = {
    {"copy", copy_dict},
    {"get", get, 1, {"key", "default"}},
    {"items", view<DictView::What::kItems>},
    {"keys", view<DictView::What::kKeys>},
    {"pop", pop_key, 1, {"key", "default"}},
    {"setdefault", set_default, 1, {"key", "default"}},
    {"update", update, 0, {}, true},
    {"values", view<DictView::What::kValues>},
};

}  // namespace

const Builtin* find_method(const Value& self, std::string_view name) {
  switch (self.kind()) {
    case Kind::kString: return find_row(string_methods(), name);
    case Kind::kList: return find_row(kListMethods, name);
    case Kind::kTuple: return find_row(kTupleMethods, name);
    case Kind::kDict: return find_row(kDictMethods, name);
    default: return nullptr;
  }
}

}  // namespace ingot::jinja
