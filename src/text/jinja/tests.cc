// The tests of `is`.
#include <algorithm>

#include "text/jinja/builtin.h"
#include "text/jinja/objects.h"
#include "text/jinja/runtime.h"
#include "text/jinja/text.h"

namespace ingot::jinja {
namespace {

Value yes_no(bool b) { return Value::boolean(b); }

bool is_iterable(const Value& v) {
  return v.is_undefined() || v.is_string() || v.is_seq() || v.is_dict() || (v.is_object() && v.object().iterable());
}

bool is_sequence(const Value& v) {
  return v.is_undefined() || v.is_string() || v.is_seq() || v.is_dict() || v.as<Range>() != nullptr;
}

// Whether the text has cased letters, and all of them have this case.
bool all_of_case(Runtime& rt, const Value& value, bool upper) {
  const std::string text = rt.str(value);
  rt.meter.spend(text.size() / 4);
  bool found = false;
  for (size_t i = 0; i < text.size();) {
    const Char c = char_at(text, i);
    if (upper ? is_lower(c.code) : is_upper(c.code)) return false;
    found = found || (upper ? is_upper(c.code) : is_lower(c.code));
    i += c.n_bytes;
  }
  return found;
}

Value remainder(Runtime& rt, const Value& value, Int by) { return rt.binary(Op::kMod, value, Value::integer(by)); }

template <Relation kRelation>
Value relation(Runtime& rt, const Value& self, const Params& p) {
  switch (kRelation) {
    case Relation::kEq: return yes_no(equal(self, *p[0], rt.meter));
    case Relation::kNe: return yes_no(!equal(self, *p[0], rt.meter));
    case Relation::kLt: return yes_no(compare(self, *p[0], "<", rt.meter) == -1);
    case Relation::kGt: return yes_no(compare(self, *p[0], ">", rt.meter) == 1);
    case Relation::kLe: return yes_no(std::abs(compare(self, *p[0], "<=", rt.meter) * 2 + 1) == 1);
    default: return yes_no(std::abs(compare(self, *p[0], ">=", rt.meter) * 2 - 1) == 1);
  }
}

constexpr Builtin kTests[] = {
    {"!=", relation<Relation::kNe>, 1, {"other"}},
    {"boolean", [](Runtime&, const Value& v, const Params&) { return yes_no(v.is_bool()); }},
    {"callable", [](Runtime&, const Value& v,
                    const Params&) { return yes_no(v.is_undefined() || (v.is_object() && v.object().callable())); }},
    {"defined", [](Runtime&, const Value& v, const Params&) { return yes_no(!v.is_undefined()); }},
    {"divisibleby",
     [](Runtime& rt, const Value& v, const Params& p) {
       return yes_no(equal(rt.binary(Op::kMod, v, *p[0]), Value::integer(0), rt.meter));
     },
     1,
     {"num"}},
    {"eq", relation<Relation::kEq>, 1, {"other"}},
    {"equalto", relation<Relation::kEq>, 1, {"other"}},
    {"==", relation<Relation::kEq>, 1, {"other"}},
    {"escaped", [](Runtime&, const Value& v, const Params&) { return yes_no(v.is_string() && v.str().markup); }},
    {"even", [](Runtime& rt, const Value& v,
                const Params&) { return yes_no(equal(remainder(rt, v, 2), Value::integer(0), rt.meter)); }},
    {"false", [](Runtime&, const Value& v, const Params&) { return yes_no(v.is_bool() && !v.as_bool()); }},
    {"filter", [](Runtime& rt, const Value& v, const Params&) { return yes_no(find_filter(rt.str(v)) != nullptr); }},
    {"float", [](Runtime&, const Value& v, const Params&) { return yes_no(v.is_float()); }},
    {"ge", relation<Relation::kGe>, 1, {"other"}},
    {">=", relation<Relation::kGe>, 1, {"other"}},
    {"greaterthan", relation<Relation::kGt>, 1, {"other"}},
    {"gt", relation<Relation::kGt>, 1, {"other"}},
    {">", relation<Relation::kGt>, 1, {"other"}},
    {"in", [](Runtime& rt, const Value& v, const Params& p) { return yes_no(rt.contains(*p[0], v)); }, 1, {"seq"}},
    {"integer", [](Runtime&, const Value& v, const Params&) { return yes_no(v.is_int()); }},
    {"iterable", [](Runtime&, const Value& v, const Params&) { return yes_no(is_iterable(v)); }},
    {"le", relation<Relation::kLe>, 1, {"other"}},
    {"<=", relation<Relation::kLe>, 1, {"other"}},
    {"lessthan", relation<Relation::kLt>, 1, {"other"}},
    {"lt", relation<Relation::kLt>, 1, {"other"}},
    {"<", relation<Relation::kLt>, 1, {"other"}},
    {"lower", [](Runtime& rt, const Value& v, const Params&) { return yes_no(all_of_case(rt, v, false)); }},
    {"mapping", [](Runtime&, const Value& v, const Params&) { return yes_no(v.is_dict()); }},
    {"ne", relation<Relation::kNe>, 1, {"other"}},
    {"none", [](Runtime&, const Value& v, const Params&) { return yes_no(v.is_none()); }},
    {"number", [](Runtime&, const Value& v, const Params&) { return yes_no(v.is_number()); }},
    {"odd", [](Runtime& rt, const Value& v,
               const Params&) { return yes_no(equal(remainder(rt, v, 2), Value::integer(1), rt.meter)); }},
    {"sameas", [](Runtime&, const Value& v, const Params& p) { return yes_no(v.same(*p[0])); }, 1, {"other"}},
    {"sequence", [](Runtime&, const Value& v, const Params&) { return yes_no(is_sequence(v)); }},
    {"string", [](Runtime&, const Value& v, const Params&) { return yes_no(v.is_string()); }},
    {"test", [](Runtime& rt, const Value& v, const Params&) { return yes_no(find_test(rt.str(v)) != nullptr); }},
    {"true", [](Runtime&, const Value& v, const Params&) { return yes_no(v.is_bool() && v.as_bool()); }},
    {"undefined", [](Runtime&, const Value& v, const Params&) { return yes_no(v.is_undefined()); }},
    {"upper", [](Runtime& rt, const Value& v, const Params&) { return yes_no(all_of_case(rt, v, true)); }},
};

}  // namespace

const Builtin* find_test(std::string_view name) { return find_row(kTests, name); }

}  // namespace ingot::jinja
