// Decorators. Trace: writes a span for every op (name, shape, time) to a track of a trace file. NanCheck: checks the
// output of each op and throws at the first NaN, so that a debugger can inspect every intermediate value.
#pragma once
#include <memory>
#include <string>

#include "backend/wrapped.h"
#include "base/trace_file.h"

namespace ingot {

std::unique_ptr<Backend> trace_backend(std::unique_ptr<Backend> inner, std::shared_ptr<TraceFile> file,
                                       std::string track);
std::unique_ptr<Backend> nan_check_backend(std::unique_ptr<Backend> inner);

}  // namespace ingot
