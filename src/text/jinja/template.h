// Jinja templates, sandboxed, as Hugging Face renders chat templates: jinja2's ImmutableSandboxedEnvironment with
// trim_blocks, lstrip_blocks, the loop controls and the {% generation %} tag, and the globals raise_exception and
// strftime_now. A template can access only its variables. Every rendering is limited in nesting, work and output
// (TemplateLimits). Called by text/chat.cc; the other files of this folder are the engine.
#pragma once
#include <ctime>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace ingot {

struct TemplateLimits {
  size_t depth = 256;               // nesting of the source, of values, and of macro calls
  size_t fuel = 1'000'000;          // steps of one rendering, which include work on bytes and list items
  size_t fuel_per_byte = 8;         // additional steps for each byte of the template's variables
  size_t output_bytes = 16u << 20;  // of the result, and of every intermediate string
  size_t source_bytes = 1u << 20;
};

// The local time that strftime_now formats; the default reads the system clock.
using TemplateClock = std::function<std::tm()>;

namespace jinja {
struct Program;
}

class Template {
 public:
  // Throws Error with line and column for a source that is not a valid template: a syntax error, an unknown tag, filter
  // or test, nesting or size over the limits, or invalid UTF-8.
  static Template parse(std::string_view source, const TemplateLimits& limits = {});

  // `variables` is a JSON object. Throws Error with the line for a failure that jinja2 would report, and for work over
  // the limits. Safe to call from several threads at once.
  std::string render(const nlohmann::ordered_json& variables, const TemplateLimits& limits = {},
                     const TemplateClock& clock = {}) const;

  // Whether the template uses this name as a variable. Shows which variables a request may usefully set.
  bool mentions(std::string_view name) const;

 private:
  explicit Template(std::shared_ptr<const jinja::Program> program);
  std::shared_ptr<const jinja::Program> program_;
};

}  // namespace ingot
