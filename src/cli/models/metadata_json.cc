#include "cli/models/metadata_json.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "base/file.h"
#include "io/gguf/gguf.h"
#include "text/json_value.h"

namespace ingot {
namespace {

constexpr size_t kMaxElements = 64, kFirstElements = 8;

JsonValue json_of(const Value& value) {
  if (value.is_array()) {
    const bool is_long = value.count > kMaxElements;
    JsonValue list = JsonValue::array();
    for (const Value& element : value.elements(is_long ? kFirstElements : kMaxElements))
      list.push_back(json_of(element));
    if (!is_long) return list;
    return {{"type", value_type_name(value.element)}, {"length", value.count}, {"first", std::move(list)}};
  }
  if (value.type == ValueType::kString) return std::string(*value.as<std::string_view>());
  if (const auto flag = value.as<bool>()) return *flag;
  if (const auto integer = value.as<int64_t>()) return *integer;
  if (const auto integer = value.as<uint64_t>()) return *integer;
  const std::optional<double> number = value.as<double>();
  if (!number || !std::isfinite(*number)) return nullptr;  // JSON has no NaN or infinity
  if (value.type != ValueType::kF32) return *number;
  return std::stod(fmt::format("{}", static_cast<float>(*number)));  // 1e-05, not 9.999999747378752e-06
}

JsonValue gguf_metadata(const Gguf& file) {
  JsonValue json = JsonValue::object();
  for (const Metadata::Entry& entry : file.metadata().entries()) json[std::string(entry.key)] = json_of(entry.value);
  return json;
}

}  // namespace

JsonValue metadata_json(const Checkpoint& checkpoint) {
  if (const Gguf* file = checkpoint.gguf()) return gguf_metadata(*file);
  return JsonValue::parse(read_file((std::filesystem::path(checkpoint.path()) / "config.json").string()));
}

}  // namespace ingot
