#include "cli/options/overrides.h"

#include <charconv>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "io/gguf/gguf.h"
#include "io/huggingface/directory.h"

namespace ingot {
namespace {

template <class T>
std::string bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

template <class T>
T number(const std::string& flag, const std::string& text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw UsageError("--override-kv {}: '{}' is not a number", printable(flag, 200), printable(text, 64));
  return value;
}

void set(Gguf& file, const std::string& flag) {
  const size_t equals = flag.find('='), colon = equals == flag.npos ? flag.npos : flag.find(':', equals);
  if (equals == 0 || colon == flag.npos)
    throw UsageError("--override-kv {}: expected KEY=TYPE:VALUE, such as tokenizer.ggml.add_bos_token=bool:false",
                     printable(flag, 200));
  const std::string key = flag.substr(0, equals), type = flag.substr(equals + 1, colon - equals - 1),
                    text = flag.substr(colon + 1);
  if (type == "int") return file.set_metadata(key, ValueType::kI64, bytes_of(number<int64_t>(flag, text)));
  if (type == "float") return file.set_metadata(key, ValueType::kF64, bytes_of(number<double>(flag, text)));
  if (type == "str") return file.set_metadata(key, ValueType::kString, text);
  if (type == "bool" && (text == "true" || text == "false"))
    return file.set_metadata(key, ValueType::kBool, std::string(1, text == "true" ? 1 : 0));
  throw UsageError("--override-kv {}: expected one of int, float, str, and bool with true or false",
                   printable(flag, 200));
}

// Refuses NaN too, which is in every range of CLI11.
std::string why_not_positive(const std::string& text) {
  double value = 0;
  const bool fits = CLI::detail::lexical_cast(text, value) && value >= 1e-6 && value <= 1e12;
  return fits ? "" : fmt::format("'{}' is no number from 0.000001 to 1e12", printable(text, 64));
}

std::string why_no_share(const std::string& text) {
  float value = 0;
  const bool fits = CLI::detail::lexical_cast(text, value) && value >= 0 && value <= 1;
  return fits ? "" : fmt::format("'{}' is no number from 0 to 1", printable(text, 64));
}

CLI::Option* add_positive(CLI::App& app, const char* name, std::optional<float>& value, const char* help) {
  return app.add_option_function<float>(name, [&value](const float& given) { value = given; }, help)
      ->check(why_not_positive, "FLOAT");
}

}  // namespace

void add_override_options(CLI::App& app, OverrideFlags& f) {
  app.add_option("--override-kv", f.keys,
                 "use this value in place of the GGUF file's: KEY=TYPE:VALUE, where TYPE is int, float, bool or str; "
                 "may be given several times")
      ->allow_extra_args(false);
  app.add_option("--rope-scaling", f.ropes.scaling, "how positions beyond the trained context are scaled")
      ->check(CLI::IsMember({"none", "linear", "yarn"}));
  add_positive(app, "--rope-scale", f.ropes.scale, "the trained context grows by this factor");
  app.add_option_function<float>(
         "--rope-freq-scale", [&f](const float& given) { f.ropes.scale = 1.0f / given; }, "1 / --rope-scale")
      ->check(why_not_positive, "FLOAT");
  add_positive(app, "--rope-freq-base", f.ropes.freq_base, "base of the rope's frequencies");
  app.add_option_function<int>(
         "--yarn-orig-ctx", [&f](const int& given) { f.ropes.original_context = given; },
         "the trained context of YaRN, in tokens")
      ->check(CLI::Range(1, 1 << 24));
  app.add_option_function<float>(
         "--yarn-ext-factor", [&f](const float& given) { f.ropes.ext_factor = given; },
         "share of the fast frequencies that YaRN leaves as they are; with 0 it interpolates all")
      ->check(why_no_share, "FLOAT");
  add_positive(app, "--yarn-attn-factor", f.ropes.attn_factor, "factor of YaRN on the size of attention scores");
  add_positive(app, "--yarn-beta-slow", f.ropes.beta_slow, "rotations below which YaRN interpolates");
  add_positive(app, "--yarn-beta-fast", f.ropes.beta_fast, "rotations above which YaRN does not interpolate");
}

std::shared_ptr<const Checkpoint> with_overrides(Gguf file, const OverrideFlags& flags) {
  for (const std::string& flag : flags.keys) set(file, flag);
  auto checkpoint = gguf_checkpoint(std::make_shared<const Gguf>(std::move(file)));
  return flags.ropes ? with_ropes(std::move(checkpoint), flags.ropes) : checkpoint;
}

std::shared_ptr<const Checkpoint> open_with_overrides(const std::string& path, const OverrideFlags& flags) {
  const bool is_directory = HfDirectory::is_one(path);
  if (is_directory && !flags.keys.empty())
    throw UsageError("--override-kv changes keys of GGUF files, but '{}' is a directory: edit its config.json",
                     printable(path));
  if (!is_directory && !flags.keys.empty()) return with_overrides(Gguf::open(path), flags);
  auto checkpoint = open_checkpoint(path);
  return flags.ropes ? with_ropes(std::move(checkpoint), flags.ropes) : checkpoint;
}

}  // namespace ingot
