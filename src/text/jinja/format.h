// Python's two ways to fill a format string: "%s" % values, and "{}".format(values).
#pragma once
#include <string>

#include "text/jinja/builtin.h"
#include "text/jinja/value.h"

namespace ingot::jinja {

class Runtime;

std::string percent_format(Runtime& rt, const Str& format, const Value& values);
std::string brace_format(Runtime& rt, const Str& format, const Args& args);

}  // namespace ingot::jinja
