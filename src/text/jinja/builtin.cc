#include "text/jinja/builtin.h"

#include <algorithm>

#include "text/jinja/runtime.h"

namespace ingot::jinja {
namespace {

// Fills the slots from positional and keyword arguments, with Python's error messages.
Params bind(const Builtin& builtin, Args& args) {
  Params params;
  params.all = &args;
  if (builtin.any_args) return params;
  size_t n_params = 0;
  while (n_params < Params::kMax && !builtin.params[n_params].empty()) ++n_params;
  if (args.positional.size() > n_params) {
    throw Error("{}() takes at most {} argument(s) ({} given)", builtin.name, n_params, args.positional.size());
  }
  for (size_t i = 0; i < args.positional.size(); ++i) params.slots[i] = &args.positional[i];
  for (const auto& [name, value] : args.keyword) {
    const auto* end = builtin.params.begin() + n_params;
    const auto* found = std::find(builtin.params.begin(), end, name);
    if (found == end) throw Error("{}() got an unexpected keyword argument '{}'", builtin.name, printable(name, 64));
    const auto i = static_cast<size_t>(found - builtin.params.begin());
    if (params.slots[i] != nullptr) throw Error("{}() got multiple values for argument '{}'", builtin.name, name);
    params.slots[i] = &value;
  }
  for (size_t i = 0; i < builtin.n_required; ++i) {
    if (params.slots[i] == nullptr) throw Error("{}() needs the argument '{}'", builtin.name, builtin.params[i]);
  }
  return params;
}

}  // namespace

bool Args::take(std::string_view name, Value& out) {
  for (size_t i = 0; i < keyword.size(); ++i) {
    if (keyword[i].first != name) continue;
    out = std::move(keyword[i].second);
    keyword.erase(keyword.begin() + static_cast<ptrdiff_t>(i));
    return true;
  }
  return false;
}

Int Params::integer(size_t i, Int fallback) const {
  if (slots[i] == nullptr) return fallback;
  if (slots[i]->is_undefined()) slots[i]->fail_undefined();
  if (!slots[i]->is_int() && !slots[i]->is_bool()) {
    throw Error("'{}' object cannot be interpreted as an integer", slots[i]->type_name());
  }
  return slots[i]->as_int();
}

bool Params::boolean(size_t i, bool fallback) const { return slots[i] == nullptr ? fallback : truthy(*slots[i]); }

const Builtin* find_row(std::span<const Builtin> rows, std::string_view name) {
  auto found = std::find_if(rows.begin(), rows.end(), [&](const Builtin& row) { return row.name == name; });
  return found == rows.end() ? nullptr : &*found;
}

const Builtin* find_filter(std::string_view name) {
  const Builtin* found = find_row(scalar_filters(), name);
  return found != nullptr ? found : find_row(list_filters(), name);
}

Value call_builtin(Runtime& rt, const Builtin& builtin, const Value& self, Args& args) {
  return builtin.function(rt, self, bind(builtin, args));
}

std::string BoundMethod::repr(Meter&, size_t) const {
  if (self_.is_undefined()) return fmt::format("<function {}>", builtin_.name);
  return fmt::format("<built-in method {} of {} object>", builtin_.name, self_.type_name());
}

Value BoundMethod::call(Runtime& rt, Args& args) { return call_builtin(rt, builtin_, self_, args); }

bool BoundMethod::equals(const Object& other) const {
  const auto* method = dynamic_cast<const BoundMethod*>(&other);
  return method != nullptr && &builtin_ == &method->builtin_ && self_.same(method->self_);
}

}  // namespace ingot::jinja
