// JsonValue: the JSON of requests and of the program's output. Objects keep the order of their members.
#pragma once
#include <nlohmann/json_fwd.hpp>

namespace ingot {

using JsonValue = nlohmann::ordered_json;

}  // namespace ingot
