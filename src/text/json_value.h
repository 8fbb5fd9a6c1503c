// JSON that the program writes, and JSON of requests. Objects keep the order of their members.
#pragma once
#include <nlohmann/json_fwd.hpp>

namespace ingot {

using JsonValue = nlohmann::ordered_json;

}  // namespace ingot
