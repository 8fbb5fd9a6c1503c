// Bytes as a model's output. The first three bytes choose the family, the options and the sizes of the pieces. Parsing
// in pieces must give the same answer as parsing the whole, no byte may be lost, and complete arguments must be an
// object.
#include <cstdio>

#include "base/check.h"
#include "text/calls/calls_check.h"

namespace ingot {
namespace {

const nlohmann::ordered_json& tools() {
  static const auto all =
      nlohmann::ordered_json::parse(R"([{"function": {"name": "get_weather", "parameters": {"properties": {
      "city": {"type": "string"}, "days": {"type": "integer"}, "note": {"type": ["string", "null"]},
      "id": {"type": ["string", "integer"]}}}}}, {"function": {"name": "now"}}])");
  return all;
}

}  // namespace
}  // namespace ingot

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ingot;
  if (size < 3) return 0;
  const CallFormat& row = call_formats()[data[0] % call_formats().size()];
  const AnswerOptions options = {.tools = data[1] & 1 ? &tools() : nullptr,
                                 .calls = (data[1] & 6) != 0,
                                 .in_reasoning = (data[1] & 8) != 0,
                                 .id_seed = 1};
  const std::string_view text(reinterpret_cast<const char*>(data) + 3, size - 3);
  const testing::Answer whole = testing::read_whole(row, text, options);
  if (!whole.fault.empty()) std::fprintf(stderr, "%s: %s\n", std::string(row.name).c_str(), whole.fault.c_str());
  CHECK(whole.fault.empty());
  CHECK(testing::described(testing::read_pieces(row, text, data[2], options)) == testing::described(whole));
  return 0;
}
