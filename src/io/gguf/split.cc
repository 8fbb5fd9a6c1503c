#include "io/gguf/split.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>

namespace ingot {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNumberKey = "split.no";
constexpr const char* kCountKey = "split.count";
constexpr size_t kDigits = 5;

// The name before "-00001-of-0000N.gguf"; nothing if the name does not have this ending for N = n_parts.
std::optional<std::string> prefix_of(std::string_view name, uint32_t n_parts) {
  const std::string end = fmt::format("-of-{:05}.gguf", n_parts);
  if (!name.ends_with(end)) return std::nullopt;
  name.remove_suffix(end.size());
  if (name.size() <= kDigits || name[name.size() - kDigits - 1] != '-') return std::nullopt;
  const std::string_view number = name.substr(name.size() - kDigits);
  if (!std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; })) return std::nullopt;
  return std::string(name.substr(0, name.size() - kDigits - 1));
}

fs::path real_folder(const fs::path& file) {
  std::error_code error;
  const fs::path real = fs::canonical(file, error);
  return error ? fs::path() : real.parent_path();
}

}  // namespace

uint32_t split_count(const Metadata& metadata) { return std::max(1u, metadata.find_u32(kCountKey).value_or(1)); }

std::string split_path(const std::string& path, uint32_t part, uint32_t n_parts) {
  const fs::path given(path);
  const auto prefix = prefix_of(given.filename().string(), n_parts);
  if (!prefix)
    throw Error(
        "{}: this is a part of a model split into {} files: its name must end in '-00001-of-{:05}.gguf', and the other "
        "parts must be in the same folder",
        printable(path), n_parts, n_parts);
  const fs::path wanted = given.parent_path() / fmt::format("{}-{:05}-of-{:05}.gguf", *prefix, part + 1, n_parts);
  const fs::path lies = real_folder(wanted);
  std::error_code error;
  const fs::path folder = fs::canonical(given.parent_path().empty() ? fs::path(".") : given.parent_path(), error);
  if (!lies.empty() && lies != folder && lies != real_folder(given))
    throw Error("{}: this part of the model is a link that leads out of its folder: put the file itself there",
                printable(wanted.string()));
  return wanted.string();
}

void check_part(const Metadata& first, const Metadata& part, uint32_t index, uint32_t n_parts) {
  const uint32_t number = part.get_u32(kNumberKey);
  if (number != index)
    throw part.error(kNumberKey, "expected {} (counting from 0) for this file, got {}", index, number);
  const uint32_t count = part.get_u32(kCountKey);
  if (count != n_parts) throw part.error(kCountKey, "expected {}, got {}", n_parts, count);
  for (const Metadata::Entry& entry : part.entries()) {
    const Value* other = first.find(entry.key);
    if (other == nullptr || entry.key == kNumberKey) continue;
    if (!std::equal(entry.value.bytes.begin(), entry.value.bytes.end(), other->bytes.begin(), other->bytes.end()))
      throw part.error(entry.key, "{} here, {} in the first part: the parts belong to different models",
                       render(entry.value), render(*other));
  }
}

}  // namespace ingot
