// Chooses a token's experts on the host, for backends whose activations are in host memory.
#pragma once
#include <cstdint>
#include <span>

#include "backend/backend.h"

namespace ingot {

// Backend::moe_route for one token: ids and weights are [args.n_used]. logits and args.bias are those of all ranks'
// experts.
void route_token(int32_t* ids, float* weights, std::span<const float> logits /* [n_experts] */, const RouteArgs& args);

}  // namespace ingot
