// Filters that work on lists and dictionaries.
#include <algorithm>
#include <optional>

#include "text/jinja/numbers.h"
#include "text/jinja/objects.h"
#include "text/jinja/print.h"
#include "text/jinja/runtime.h"
#include "text/jinja/text.h"

namespace ingot::jinja {
namespace {

// "a.b.0": attributes of attributes; a part made of digits is an index.
class Path {
 public:
  Path(Runtime& rt, const Value& path) : rt_(rt) {
    if (path.is_none()) return;
    if (!path.is_string()) {
      parts_.push_back(path);
      return;
    }
    const std::string& text = path.text();
    for (size_t start = 0; start <= text.size();) {
      const size_t end = std::min(text.find('.', start), text.size());
      const std::string part = text.substr(start, end - start);
      const bool digits = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
      parts_.push_back(digits ? Value::integer(*int_of_text(part, 10)) : Value::string(part));
      start = end + 1;
      rt.meter.items(1);
    }
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
  return value.is_string() && !case_sensitive ? rt.text(to_lower(value.text())) : value;
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
  return rt.iterator(DictView(self.dict_ptr(), DictView::What::kItems).drain(rt.meter));
}

Value first(Runtime& rt, const Value& self, const Params&) {
  const Value none = Value::undefined("No first item, sequence was empty");
  if (auto* iterator = self.as<Iterator>()) {
    Value out;
    return iterator->next(out) ? out : none;
  }
  if (self.is_seq()) return self.items().empty() ? none : self.items().front();
  if (self.is_string()) return self.text().empty() ? none : rt.get_item(self, Value::integer(0));
  const std::vector<Value> all = rt.iterate(self);
  return all.empty() ? none : all.front();
}

Value last(Runtime& rt, const Value& self, const Params&) {
  if (self.as<Iterator>() != nullptr) throw Error("'{}' object is not reversible", self.type_name());
  const Value none = Value::undefined("No last item, sequence was empty");
  if (self.is_seq()) return self.items().empty() ? none : self.items().back();
  if (self.is_string()) return self.text().empty() ? none : rt.get_item(self, Value::integer(-1));
  const std::vector<Value> all = rt.iterate(self);
  return all.empty() ? none : all.back();
}

Value join(Runtime& rt, const Value& self, const Params& p) {
  const std::string separator = p[0] != nullptr ? rt.str(*p[0]) : "";
  std::optional<Path> path;
  if (p.given(1) != nullptr) path.emplace(rt, *p[1]);
  std::string out;
  bool is_first = true;
  for (const Value& item : rt.iterate(self)) {
    const std::string text = rt.str(path ? path->of(item) : item);
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
  return self.as<Iterator>() != nullptr ? rt.list(std::move(all)) : rt.iterator(std::move(all), "list_reverseiterator");
}

Value sort(Runtime& rt, const Value& self, const Params& p) {
  const bool case_sensitive = p.boolean(1, false);
  std::vector<Path> paths;
  if (p.given(2) != nullptr && p[2]->is_string()) {
    const std::string& names = p[2]->text();
    for (size_t start = 0; start <= names.size();) {
      const size_t end = std::min(names.find(',', start), names.size());
      paths.emplace_back(rt, Value::string(names.substr(start, end - start)));
      start = end + 1;
    }
  } else {
    paths.emplace_back(rt, p.given(2) != nullptr ? *p[2] : Value::none());
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
  const Path path(rt, p.given(1) != nullptr ? *p[1] : Value::none());
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

Value extreme(Runtime& rt, const Value& self, const Params& p, const char* op, int wanted) {
  const Path path(rt, p.given(1) != nullptr ? *p[1] : Value::none());
  Value best = Value::undefined("No aggregated item, sequence was empty"), best_key;
  bool is_first = true;
  for (const Value& item : rt.iterate(self)) {
    Value key = without_case(rt, path.of(item), p.boolean(0, false));
    if (!is_first && compare(key, best_key, op, rt.meter) != wanted) continue;
    best = item;
    best_key = std::move(key);
    is_first = false;
  }
  return best;
}

Value min(Runtime& rt, const Value& self, const Params& p) { return extreme(rt, self, p, "<", -1); }
Value max(Runtime& rt, const Value& self, const Params& p) { return extreme(rt, self, p, ">", 1); }

Value sum(Runtime& rt, const Value& self, const Params& p) {
  const Path path(rt, p.given(0) != nullptr ? *p[0] : Value::none());
  Value total = p[1] != nullptr ? *p[1] : Value::integer(0);
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
  const Path path(rt, *p[0]);
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
  Value out;
  if (rt.attribute(self, name, out)) return out;
  return Value::undefined(fmt::format("'{} object' has no attribute '{}'", self.type_name(), printable(name, 64)));
}

Value map(Runtime& rt, const Value& self, const Params& p) {
  std::vector<Value> out;
  Args args = *p.all;
  Value path, fallback;
  if (!truthy(self)) return rt.iterator({});
  if (args.positional.empty() && args.take("attribute", path)) {
    const bool has_default = args.take("default", fallback);
    if (!args.keyword.empty()) throw Error("Unexpected keyword argument '{}'", printable(args.keyword[0].first, 64));
    const Path to(rt, path);
    for (const Value& item : rt.iterate(self)) out.push_back(to.of(item, has_default ? &fallback : nullptr));
    return rt.iterator(std::move(out));
  }
  if (args.positional.empty()) throw Error("map requires a filter argument");
  const std::string name = rt.str(args.positional[0]);
  args.positional.erase(args.positional.begin());
  for (const Value& item : rt.iterate(self)) {
    Args copy = args;
    rt.meter.spend(1 + args.positional.size());
    out.push_back(rt.call_filter(name, item, copy));
  }
  return rt.iterator(std::move(out));
}

// select and reject: choose items by a test or by truth, applied to each item or to one of its attributes.
Value choose(Runtime& rt, const Value& self, const Params& p, bool by_attribute, bool wanted) {
  if (!truthy(self)) return rt.iterator({});
  Args args = *p.all;
  Value attribute = Value::none();
  if (by_attribute) {
    if (args.positional.empty()) throw Error("Missing parameter for attribute name");
    attribute = args.positional[0];
    args.positional.erase(args.positional.begin());
  }
  const Path path(rt, attribute);
  const bool has_test = !args.positional.empty();
  const std::string name = has_test ? rt.str(args.positional[0]) : "";
  if (has_test) args.positional.erase(args.positional.begin());
  std::vector<Value> kept;
  for (const Value& item : rt.iterate(self)) {
    Args copy = args;
    rt.meter.spend(1 + args.positional.size());
    const Value tested = path.of(item);
    if ((has_test ? rt.call_test(name, tested, copy) : truthy(tested)) == wanted) kept.push_back(item);
  }
  return rt.iterator(std::move(kept));
}

Value select(Runtime& rt, const Value& self, const Params& p) { return choose(rt, self, p, false, true); }
Value reject(Runtime& rt, const Value& self, const Params& p) { return choose(rt, self, p, false, false); }
Value select_attr(Runtime& rt, const Value& self, const Params& p) { return choose(rt, self, p, true, true); }
Value reject_attr(Runtime& rt, const Value& self, const Params& p) { return choose(rt, self, p, true, false); }

constexpr Builtin kListFilters[] = {
    {"attr", attr, 1, {"name"}},
    {"batch", batch, 1, {"linecount", "fill_with"}},
    {"count", length},
    {"dictsort", dict_sort, 0, {"case_sensitive", "by", "reverse"}},
    {"first", first},
    {"groupby", group_by, 1, {"attribute", "default", "case_sensitive"}},
    {"items", items},
    {"join", join, 0, {"d", "attribute"}},
    {"last", last},
    {"length", length},
    {"list", list},
    {"map", map, 0, {}, true},
    {"max", max, 0, {"case_sensitive", "attribute"}},
    {"min", min, 0, {"case_sensitive", "attribute"}},
    {"reject", reject, 0, {}, true},
    {"rejectattr", reject_attr, 0, {}, true},
    {"reverse", reverse},
    {"select", select, 0, {}, true},
    {"selectattr", select_attr, 0, {}, true},
    {"slice", slice, 1, {"slices", "fill_with"}},
    {"sort", sort, 0, {"reverse", "case_sensitive", "attribute"}},
    {"sum", sum, 0, {"attribute", "start"}},
    {"unique", unique, 0, {"case_sensitive", "attribute"}},
};

}  // namespace

std::span<const Builtin> list_filters() { return kListFilters; }

}  // namespace ingot::jinja
