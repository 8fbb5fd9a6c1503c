// The execution of a template's statements.
#include "text/jinja/objects.h"
#include "text/jinja/runtime.h"

namespace ingot::jinja {

namespace {

// jinja2 joins the output of these blocks with the surrounding text without a conversion, so the output must be text.
void write_text(Runtime& rt, const Value& value) {
  if (!value.is_string()) throw Error("the block gives a {}, not text", value.type_name());
  rt.write(value.text());
}

}  // namespace

Flow Data::run(Runtime& rt) const {
  rt.write(text);
  return Flow::kNext;
}

Flow Print::run(Runtime& rt) const {
  const Value shown = rt.eval(*value);
  if (shown.is_string()) {
    rt.write(shown.text());
  } else {
    rt.write(rt.str(shown));
  }
  return Flow::kNext;
}

Flow If::run(Runtime& rt) const {
  for (const auto& [test, block] : branches) {
    if (truthy(rt.eval(*test))) return rt.run(block);
  }
  return rt.run(otherwise);
}

Flow For::run(Runtime& rt) const {
  const Value source = rt.eval(*items);
  rt.at(line);
  return run_loop(rt, *this, rt.iterate(source), rt.scope(), 0);
}

Flow Set::run(Runtime& rt) const {
  const Value made = rt.eval(*value);
  rt.at(line);
  rt.assign(target, made);
  return Flow::kNext;
}

Flow SetBlock::run(Runtime& rt) const {
  Value made;
  {
    Runtime::Enter enter(rt, body);
    Runtime::Capture capture(rt);
    const Flow flow = rt.run(body);
    if (flow != Flow::kNext) return flow;
    rt.captured = Value::string(std::move(capture.text));
    made = rt.eval(*value);
  }
  rt.at(line);
  rt.assign(target, made);
  return Flow::kNext;
}

Flow MacroDef::run(Runtime& rt) const {
  rt.keep(rt.scope());
  rt.scope()->set(id, Value::object(std::make_shared<Macro>(macro, rt.scope())));
  return Flow::kNext;
}

Flow CallBlock::run(Runtime& rt) const {
  rt.keep(rt.scope());
  const Value callee = rt.eval(*call->callee);
  Args args = rt.eval_args(call->args);
  Value other;
  if (args.take("caller", other)) throw Error("a call block already gives the argument 'caller'");
  args.keyword.emplace_back("caller", Value::object(std::make_shared<Macro>(caller, rt.scope())));
  rt.at(line);
  write_text(rt, rt.call(callee, args));
  return Flow::kNext;
}

Flow FilterBlock::run(Runtime& rt) const {
  Runtime::Enter enter(rt, body);
  Value made;
  {
    Runtime::Capture capture(rt);
    const Flow flow = rt.run(body);
    if (flow != Flow::kNext) return flow;
    rt.captured = Value::string(std::move(capture.text));
    made = rt.eval(*value);
  }
  write_text(rt, made);
  return Flow::kNext;
}

Flow With::run(Runtime& rt) const {
  std::vector<Value> made;
  for (const auto& [target, value] : values) made.push_back(rt.eval(*value));
  Runtime::Enter enter(rt, body);
  for (size_t i = 0; i < values.size(); ++i) rt.assign(values[i].first, made[i]);
  return rt.run(body);
}

}  // namespace ingot::jinja
