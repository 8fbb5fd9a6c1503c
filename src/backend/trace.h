// Decorators. Trace: writes a span for every op (name, shape, time) to a trace file. NanCheck: looks at what each op
// wrote and throws at the first NaN, which makes every intermediate value reachable from a debugger.
#pragma once
#include <memory>

#include "backend/wrapped.h"
#include "base/trace_file.h"

namespace ingot {

std::unique_ptr<Backend> trace_backend(std::unique_ptr<Backend> inner, std::shared_ptr<TraceFile> file);
std::unique_ptr<Backend> nan_check_backend(std::unique_ptr<Backend> inner);

}  // namespace ingot
