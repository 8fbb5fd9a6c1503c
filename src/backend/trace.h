// Trace: writes a span for every verb (name, shape, time) to a trace file; with check_nan also looks at what each verb
// wrote and throws at the first NaN, which makes every intermediate value reachable from a debugger.
// Unfused: runs the default body of every fused verb, so that an override can be ruled out.
#pragma once
#include <memory>

#include "backend/wrapped.h"
#include "base/trace_file.h"

namespace ingot {

std::unique_ptr<Backend> trace_backend(std::unique_ptr<Backend> inner, std::shared_ptr<TraceFile> file);
std::unique_ptr<Backend> nan_check_backend(std::unique_ptr<Backend> inner);
std::unique_ptr<Backend> unfused_backend(std::unique_ptr<Backend> inner);

}  // namespace ingot
