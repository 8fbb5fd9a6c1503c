// Which experts a token goes to, on the host: for backends whose activations live there.
#pragma once
#include <cstdint>
#include <span>

#include "backend/backend.h"

namespace ingot {

// One token of Backend::moe_route: ids and weights are [args.n_used].
void route_token(int32_t* ids, float* weights, std::span<const float> logits /* [n_experts] */, const RouteArgs& args);

}  // namespace ingot
