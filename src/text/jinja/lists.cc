// The filters of lists and dictionaries, then the methods of list, tuple and dict. Hugging Face's sandbox refuses the
// methods that change a value. append, extend, insert, pop, update and setdefault are still offered, because published
// templates use them, and all values belong to one rendering.
#include <algorithm>
#include <optional>

#include "text/jinja/runtime.h"
#include "text/jinja/text.h"

namespace ingot::jinja {
namespace {

// Gives each part between separators to `use`, which charges for it before the next part is made.
template <class Use>
void split_text(std::string_view text, char separator, const Use& use) {
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find(separator, start), text.size());
    use(std::string(text.substr(start, end - start)));
    start = end + 1;
  }
}

// "a.b.0": attributes of attributes; a part made of digits is an index.
class Path {
 public:
  Path(Runtime& rt, const Value* path) : rt_(rt) {
    if (path == nullptr) return;
    if (!path->is_string()) {
      parts_.push_back(*path);
      return;
    }
    split_text(path->text(), '.', [&](const std::string& part) {
      const bool digits = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
      parts_.push_back(digits ? Value::integer(*int_of_text(part, 10)) : Value::string(part));
      rt.meter.items(1);
    });
  }
  Value of(Value item, const Value* fallback = nullptr) const {
    for (const Value& part : parts_) {
      rt_.meter.spend();
      item = rt_.get_item(item, part);
      if (item.is_undefined() && fallback != nullptr && !fallback->is_none()) item = *fallback;
    }
    return item;
  }

 private:
  Runtime& rt_;
  std::vector<Value> parts_;
};

Value without_case(Runtime& rt, const Value& value, bool case_sensitive) {
  return value.is_string() && !case_sensitive ? rt.text(with_case(value.text(), Casing::kLower)) : value;
}

struct Keyed {
  Value key, item;
};

void sort_keyed(Runtime& rt, std::vector<Keyed>& keyed, bool reverse) {
  std::stable_sort(keyed.begin(), keyed.end(), [&](const Keyed& a, const Keyed& b) {
    return compare(reverse ? b.key : a.key, reverse ? a.key : b.key, "<", rt.meter) == -1;
  });
}

std::vector<Value> items_of(std::vector<Keyed> keyed) {
  std::vector<Value> items;
  for (Keyed& one : keyed) items.push_back(std::move(one.item));
  return items;
}

Value length(Runtime& rt, const Value& self, const Params&) {
  return Value::integer(static_cast<Int>(rt.length(self)));
}
Value list(Runtime& rt, const Value& self, const Params&) { return rt.list(rt.iterate(self)); }

Value items(Runtime& rt, const Value& self, const Params&) {
  if (self.is_undefined()) return rt.iterator({});
  if (!self.is_dict()) throw Error("Can only get item pairs from a mapping");
  return rt.iterator(rt.iterate(make_view(self.dict_ptr(), View::kItems)));
}

// The first or last item.
template <bool kLast>
Value end_item(Runtime& rt, const Value& self, const Params&) {
  const bool consumable = self.is_object() && self.object().consumable();
  if (kLast && consumable) throw Error("'{}' object is not reversible", self.type_name());
  const Value none = Value::undefined(kLast ? "No last item, sequence was empty" : "No first item, sequence was empty");
  if (consumable) return self.object().next().value_or(none);
  if (self.is_string()) return self.text().empty() ? none : rt.get_item(self, Value::integer(kLast ? -1 : 0));
  auto end_of = [&](const std::vector<Value>& all) { return all.empty() ? none : kLast ? all.back() : all.front(); };
  return self.is_seq() ? end_of(self.items()) : end_of(rt.iterate(self));
}

Value join(Runtime& rt, const Value& self, const Params& p) {
  const std::string separator = p[0] != nullptr ? rt.str(*p[0]) : "";
  const Path path(rt, p.given(1));
  std::string out;
  bool is_first = true;
  for (const Value& item : rt.iterate(self)) {
    const std::string text = rt.str(path.of(item));
    rt.meter.fits(out.size() + separator.size() + text.size());
    if (!is_first) out += separator;
    out += text;
    is_first = false;
  }
  return rt.text(std::move(out));
}

Value reverse(Runtime& rt, const Value& self, const Params&) {
  if (self.is_string()) {
    const Value step = Value::integer(-1);
    return rt.get_slice(self, nullptr, nullptr, &step);
  }
  std::vector<Value> all = rt.iterate(self);
  std::reverse(all.begin(), all.end());
  const bool is_list = self.is_object() && self.object().consumable();  // as in jinja2
  return is_list ? rt.list(std::move(all)) : rt.iterator(std::move(all), "list_reverseiterator");
}

Value sort(Runtime& rt, const Value& self, const Params& p) {
  const bool case_sensitive = p.boolean(1, false);
  std::vector<Path> paths;
  if (p.given(2) != nullptr && p[2]->is_string()) {
    split_text(p[2]->text(), ',', [&](const std::string& name) {
      const Value path = Value::string(name);
      paths.emplace_back(rt, &path);
    });
  } else {
    paths.emplace_back(rt, p.given(2));
  }
  std::vector<Keyed> keyed;
  for (const Value& item : rt.iterate(self)) {
    std::vector<Value> keys;
    for (const Path& path : paths) keys.push_back(without_case(rt, path.of(item), case_sensitive));
    keyed.push_back({rt.list(std::move(keys)), item});
  }
  sort_keyed(rt, keyed, p.boolean(0, false));
  return rt.list(items_of(std::move(keyed)));
}

Value dict_sort(Runtime& rt, const Value& self, const Params& p) {
  const std::string by = p[1] != nullptr ? rt.str(*p[1]) : "key";
  if (by != "key" && by != "value") throw Error("You can only sort by either \"key\" or \"value\"");
  if (self.is_undefined()) self.fail_undefined();
  if (!self.is_dict()) throw Error("dictsort works on a dictionary, not on {}", self.type_name());
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : self.dict().entries()) {
    keyed.push_back({without_case(rt, by == "key" ? key : value, p.boolean(0, false)), rt.tuple({key, value})});
  }
  sort_keyed(rt, keyed, p.boolean(2, false));
  return rt.list(items_of(std::move(keyed)));
}

Value unique(Runtime& rt, const Value& self, const Params& p) {
  const Path path(rt, p.given(1));
  Dict seen;
  std::vector<Value> kept;
  for (const Value& item : rt.iterate(self)) {
    const Value key = without_case(rt, path.of(item), p.boolean(0, false));
    if (seen.find(key, rt.meter) != nullptr) continue;
    seen.set(key, Value::none(), rt.meter);
    kept.push_back(item);
  }
  return rt.iterator(std::move(kept));
}

// The smallest or largest item.
template <bool kMax>
Value extreme(Runtime& rt, const Value& self, const Params& p) {
  const Path path(rt, p.given(1));
  Value best = Value::undefined("No aggregated item, sequence was empty"), best_key;
  bool is_first = true;
  for (const Value& item : rt.iterate(self)) {
    Value key = without_case(rt, path.of(item), p.boolean(0, false));
    if (!is_first && !rt.holds(kMax ? Relation::kGt : Relation::kLt, key, best_key)) continue;
    best = item;
    best_key = std::move(key);
    is_first = false;
  }
  return best;
}

Value sum(Runtime& rt, const Value& self, const Params& p) {
  const Path path(rt, p.given(0));
  Value total = p.value(1, Value::integer(0));
  for (const Value& item : rt.iterate(self)) total = rt.binary(Op::kAdd, total, path.of(item));
  return total;
}

Value batch(Runtime& rt, const Value& self, const Params& p) {
  const Int size = p[0]->is_int() ? p[0]->as_int() : -1;  // jinja2 only compares the number of items with this value
  std::vector<Value> batches, now;
  for (const Value& item : rt.iterate(self)) {
    if (static_cast<Int>(now.size()) == size) batches.push_back(rt.list(std::move(now))), now.clear();
    now.push_back(item);
  }
  if (!now.empty() && p.given(1) != nullptr && static_cast<Int>(now.size()) < size) {
    rt.meter.items(size > Int(Meter::kMaxItems) ? Meter::kMaxItems + 1 : static_cast<size_t>(size));
    now.resize(static_cast<size_t>(size), *p[1]);
  }
  if (!now.empty()) batches.push_back(rt.list(std::move(now)));
  return rt.iterator(std::move(batches));
}

Value slice(Runtime& rt, const Value& self, const Params& p) {
  const std::vector<Value> all = rt.iterate(self);
  const Int n_slices = p.integer(0, 0);
  if (n_slices == 0) throw Error("integer division or modulo by zero");
  if (n_slices > Int(Meter::kMaxItems)) rt.meter.items(Meter::kMaxItems + 1);
  std::vector<Value> slices;
  const size_t n = n_slices < 0 ? 0 : static_cast<size_t>(n_slices), size = n == 0 ? 0 : all.size() / n;
  size_t start = 0;
  for (size_t i = 0; i < n; ++i) {
    const bool extra = i < all.size() % n;
    std::vector<Value> part(all.begin() + static_cast<ptrdiff_t>(start),
                            all.begin() + static_cast<ptrdiff_t>(start + size + extra));
    start += size + extra;
    if (!extra && p.given(1) != nullptr) part.push_back(*p[1]);
    slices.push_back(rt.list(std::move(part)));
  }
  return rt.iterator(std::move(slices));
}

Value group_by(Runtime& rt, const Value& self, const Params& p) {
  const Path path(rt, p.given(0));
  const bool case_sensitive = p.boolean(2, false);
  std::vector<Keyed> keyed;
  for (const Value& item : rt.iterate(self))
    keyed.push_back({without_case(rt, path.of(item, p[1]), case_sensitive), item});
  sort_keyed(rt, keyed, false);
  std::vector<Value> groups;
  for (size_t i = 0; i < keyed.size();) {
    const Value key = path.of(keyed[i].item, p[1]);  // the unchanged key of the group's first item
    const size_t start = i;
    std::vector<Value> members;
    while (i < keyed.size() && equal(keyed[i].key, keyed[start].key, rt.meter)) members.push_back(keyed[i++].item);
    if (i == start) members.push_back(keyed[i++].item);  // NaN is not equal even to itself
    const Value group = rt.tuple({key, rt.list(std::move(members))});
    group.seq().group = true;
    groups.push_back(group);
  }
  return rt.list(std::move(groups));
}

Value attr(Runtime& rt, const Value& self, const Params& p) {
  if (self.is_undefined()) self.fail_undefined();
  const std::string name = rt.str(*p[0]);
  if (auto found = rt.attribute(self, name)) return std::move(*found);
  return Value::undefined(fmt::format("'{} object' has no attribute '{}'", self.type_name(), printable(name, 64)));
}

Value take_first(Args& args) {
  const Value first = args.positional[0];
  args.positional.erase(args.positional.begin());
  return first;
}

Value map(Runtime& rt, const Value& self, const Params& p) {
  std::vector<Value> out;
  Args args = *p.all;
  if (!truthy(self)) return rt.iterator({});
  if (args.positional.empty()) {
    const auto attribute = args.take("attribute"), fallback = attribute ? args.take("default") : std::nullopt;
    if (!attribute) throw Error("map requires a filter argument");
    if (!args.keyword.empty()) throw Error("Unexpected keyword argument '{}'", printable(args.keyword[0].first, 64));
    const Path path(rt, attribute->is_none() ? nullptr : &*attribute);
    for (const Value& item : rt.iterate(self)) out.push_back(path.of(item, fallback ? &*fallback : nullptr));
    return rt.iterator(std::move(out));
  }
  const std::string name = rt.str(take_first(args));
  for (const Value& item : rt.iterate(self)) {
    Args copy = args;
    rt.meter.spend(1 + args.positional.size());
    out.push_back(rt.call_filter(name, item, copy));
  }
  return rt.iterator(std::move(out));
}

// select and reject: choose items by a test or by truth, applied to each item or to one of its attributes.
template <bool kByAttribute, bool kWanted>
Value choose(Runtime& rt, const Value& self, const Params& p) {
  if (!truthy(self)) return rt.iterator({});
  Args args = *p.all;
  if (kByAttribute && args.positional.empty()) throw Error("Missing parameter for attribute name");
  const Value attribute = kByAttribute ? take_first(args) : Value::none();
  const Path path(rt, attribute.is_none() ? nullptr : &attribute);
  const bool has_test = !args.positional.empty();
  const std::string name = has_test ? rt.str(take_first(args)) : "";
  std::vector<Value> kept;
  for (const Value& item : rt.iterate(self)) {
    Args copy = args;
    rt.meter.spend(1 + args.positional.size());
    const Value tested = path.of(item);
    if ((has_test ? rt.call_test(name, tested, copy) : truthy(tested)) == kWanted) kept.push_back(item);
  }
  return rt.iterator(std::move(kept));
}

constexpr Builtin kListFilters[] = {
    {"attr", attr, 1, {"name"}},
    {"batch", batch, 1, {"linecount", "fill_with"}},
    {"count", length},
    {"dictsort", dict_sort, 0, {"case_sensitive", "by", "reverse"}},
    {"first", end_item<false>},
    {"groupby", group_by, 1, {"attribute", "default", "case_sensitive"}},
    {"items", items},
    {"join", join, 0, {"d", "attribute"}},
    {"last", end_item<true>},
    {"length", length},
    {"list", list},
    {"map", map, 0, {}, true},
    {"max", extreme<true>, 0, {"case_sensitive", "attribute"}},
    {"min", extreme<false>, 0, {"case_sensitive", "attribute"}},
    {"reject", choose<false, false>, 0, {}, true},
    {"rejectattr", choose<true, false>, 0, {}, true},
    {"reverse", reverse},
    {"select", choose<false, true>, 0, {}, true},
    {"selectattr", choose<true, true>, 0, {}, true},
    {"slice", slice, 1, {"slices", "fill_with"}},
    {"sort", sort, 0, {"reverse", "case_sensitive", "attribute"}},
    {"sum", sum, 0, {"attribute", "start"}},
    {"unique", unique, 0, {"case_sensitive", "attribute"}},
};

// ---- Methods

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
  rt.meter.nested(item.depth() + 1);
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

bool is_item(Runtime& rt, const Value& item, const Value& wanted) {
  return item.same(wanted) || equal(item, wanted, rt.meter);
}

Value count(Runtime& rt, const Value& self, const Params& p) {
  Int n = 0;
  for (const Value& item : self.items()) n += is_item(rt, item, *p[0]);
  return Value::integer(n);
}

Value index(Runtime& rt, const Value& self, const Params& p) {
  const std::vector<Value>& items = self.items();
  for (size_t i = 0; i < items.size(); ++i) {
    if (is_item(rt, items[i], *p[0])) return Value::integer(static_cast<Int>(i));
  }
  throw Error("the value is not in the list");
}

template <View kWhat>
Value view(Runtime&, const Value& self, const Params&) {
  return make_view(self.dict_ptr(), kWhat);
}

Value get(Runtime& rt, const Value& self, const Params& p) {
  const Value* found = self.dict().find(*p[0], rt.meter);
  return found != nullptr ? *found : p.value(1, Value::none());
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
  const Value made = p.value(1, Value::none());
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
  p.all->add_keywords_to(self.dict(), rt.meter);
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
    {"items", view<View::kItems>},
    {"keys", view<View::kKeys>},
    {"pop", pop_key, 1, {"key", "default"}},
    {"setdefault", set_default, 1, {"key", "default"}},
    {"update", update, 0, {}, true},
    {"values", view<View::kValues>},
};

}  // namespace

Builtins list_filters() { return kListFilters; }

const Builtin* find_container_method(const Value& self, std::string_view name) {
  switch (self.kind()) {
    case Kind::kList: return find_row(kListMethods, name);
    case Kind::kTuple: return find_row(kTupleMethods, name);
    case Kind::kDict: return find_row(kDictMethods, name);
    default: return nullptr;
  }
}

}  // namespace ingot::jinja
