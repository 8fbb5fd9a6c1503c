// What a consumer hears at the end of a request. For src/engine only.
#pragma once
#include "engine/request.h"
#include "engine/sequence.h"

namespace ingot {

Usage usage_of(const Sequence& sequence);

// Logs the sink's exceptions. With a sequence: tells all its sinks.
void tell_end(RequestId id, TokenSink& sink, const Finish& finish) noexcept;
void tell_end(const Sequence& sequence, const Finish& finish) noexcept;

}  // namespace ingot
