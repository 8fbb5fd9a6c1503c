#include "cli/spellings.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "io/hub/name.h"

namespace ingot {
namespace {

using Words = std::vector<std::string>;

enum class Takes { kNothing, kValue, kSwitch };  // kSwitch: on, off, auto, 0 or 1, which may be absent

// A flag of llama.cpp that ingot does not have. If the command has the flag `ours`, `ours` is used with the same value.
// Otherwise the flag is removed, and the note contains `why`.
struct LlamaFlag {
  std::string_view names;  // separated by spaces
  Takes takes;
  const char* ours;
  const char* why;
};

constexpr LlamaFlag kLlamaFlags[] = {
    {"-hf -hfr", Takes::kValue, "--hf-repo", ""},
    {"-hff", Takes::kValue, "--hf-file", ""},
    {"--n-predict", Takes::kValue, "--predict", ""},
    {"-j", Takes::kValue, "--json-schema", ""},
    {"-mm", Takes::kValue, "--mmproj", ""},
    {"-md --model-draft", Takes::kValue, "--draft", ""},
    {"-hft", Takes::kValue, "--hf-token", ""},
    {"-np --parallel", Takes::kValue, "--max-seqs", "only `ingot serve` computes several sequences"},
    {"-ctk --cache-type-k", Takes::kValue, "--cache-type", ""},
    {"-sys --system-prompt", Takes::kValue, "--system", ""},
    {"-no-cnv --no-conversation", Takes::kNothing, "--raw", ""},
    {"-ctv --cache-type-v", Takes::kValue, nullptr, "values have the type of the keys, --cache-type"},
    {"-fa --flash-attn", Takes::kSwitch, nullptr, "attention never stores its scores"},
    {"-cb -nocb --cont-batching --no-cont-batching", Takes::kNothing, nullptr, "batching is always continuous"},
    {"--mlock --mmap --no-mmap", Takes::kNothing, nullptr, "weights are copied into the device's memory"},
    {"--jinja", Takes::kNothing, nullptr, "chat templates are always Jinja"},
    {"-ub --ubatch-size", Takes::kValue, nullptr, "--chunk says how many tokens a step has"},
    {"-tb --threads-batch", Takes::kValue, nullptr, "prefill and decode have the same --threads"},
    {"--threads-http", Takes::kValue, nullptr, "the server chooses its threads"},
    {"-ncmoe --n-cpu-moe", Takes::kValue, "--cpu-experts", "experts are where the rest of the model is"},
    {"-ot", Takes::kValue, "--override-tensor", "experts are where the rest of the model is"},
    {"-sm --split-mode -ts --tensor-split -mg --main-gpu", Takes::kValue, nullptr,
     "--device, --pp and --layers-split say how devices share a model"},
    {"--warmup --no-warmup", Takes::kNothing, nullptr, "there is no warm-up run"},
    {"--no-context-shift", Takes::kNothing, nullptr, "the context never shifts"},
    {"-cnv --conversation -i --interactive", Takes::kNothing, nullptr, "`ingot chat` is a conversation"},
    {"-st --single-turn", Takes::kNothing, nullptr, "`ingot run` is a single turn"},
    {"--metrics --slots --props", Takes::kNothing, nullptr, "these routes are always there"},
    {"--no-perf --no-display-prompt -co --color", Takes::kNothing, nullptr, "the answer alone is standard output"},
};

// Translates other names of commands, and `help` and `version`.
Words known_words(Words args) {
  if (args.empty() || args == Words{"help"}) return {"--help"};
  if (args[0] == "help") return {args[1], "--help"};
  if (args[0] == "version") args[0] = "--version";
  if (args[0] == "list") args[0] = "ls";
  return args;
}

// Levenshtein distance: the number of letters to add, remove or change.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t change = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, diagonal + 1, change});
    }
  }
  return row.back();
}

std::string nearest_to(std::string_view typed, const Words& names) {
  std::string nearest;
  size_t best = std::max<size_t>(2, typed.size() / 3) + 1;
  for (const std::string& name : names)
    if (const size_t distance = edit_distance(typed, name); distance < best) best = distance, nearest = name;
  return nearest;
}

const CLI::App* find_command(const CLI::App& app, const std::string& name) {
  Words names;
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->get_name() == name) return command;
    names.push_back(command->get_name());
  }
  const std::string nearest = nearest_to(name, names);
  throw UsageError("unknown command '{}'{}: use one of {}; see ingot --help", printable(name),
                   nearest.empty() ? "" : fmt::format(" (nearest: {})", nearest), fmt::join(names, ", "));
}

const LlamaFlag* find_llama_flag(std::string_view flag) {
  const std::string wanted = fmt::format(" {} ", flag);
  for (const LlamaFlag& row : kLlamaFlags)
    if (fmt::format(" {} ", row.names).find(wanted) != std::string::npos) return &row;
  return nullptr;
}

// What to do instead of a flag of llama.cpp that ingot lacks; null for other words.
const char* instead_of(std::string_view flag) {
  struct Lacking {
    std::string_view names;  // separated by spaces
    const char* instead;
  };
  static constexpr Lacking kLacking[] = {
#define LACKING(names, instead) {names, instead},
#include "cli/llama_flags.def"
#undef LACKING
  };
  for (const Lacking& row : kLacking)
    if (fmt::format(" {} ", row.names).find(fmt::format(" {} ", flag)) != std::string::npos) return row.instead;
  return nullptr;
}

// Iterates over the flags of a command and skips their values (-hf in "-p -hf").
class Arguments {
 public:
  Arguments(const CLI::App& command, Words args) : command_(command), args_(std::move(args)) {}

  Words known() {
    for (at_ = 1; at_ < args_.size() && args_[at_] != "--"; ++at_)
      if (args_[at_].starts_with("-")) take_flag();
    args_.insert(args_.end(), added_.begin(), added_.end());
    if (!notes_.empty())
      fmt::print(stderr, "ingot: note: flags of llama.cpp that change nothing here: {}\n", fmt::join(notes_, "; "));
    return std::move(args_);
  }

 private:
  void take_flag() {
    const size_t equals = std::min(args_[at_].find('='), args_[at_].size());
    const std::string flag = args_[at_].substr(0, equals);
    if (has("--device") && (flag == "-ngl" || flag == "--gpu-layers" || flag == "--n-gpu-layers"))
      return take_gpu_layers();
    if (has(flag)) return take_ours(flag);
    if (has("--cpu-experts") && (flag == "-cmoe" || flag == "--cpu-moe")) return replace("--cpu-experts", "all");
    if (flag == "-v" || flag == "--verbose") return replace("--log-level", "debug");
    if (flag == "--log-disable") return replace("--log-level", "off");
    const LlamaFlag* foreign = find_llama_flag(flag);
    if (foreign == nullptr) return;
    if (foreign->ours != nullptr && has(foreign->ours)) {
      args_[at_].replace(0, equals, foreign->ours);
      return take_ours(foreign->ours);
    }
    if (foreign->why[0] == '\0' || !has("--device")) return;
    erase(foreign->takes);
    notes_.push_back(fmt::format("{} ({})", flag, foreign->why));
  }

  bool has(const std::string& flag) const { return command_.get_option_no_throw(flag) != nullptr; }

  // --hf-repo is another name of MODEL, but its value is never a path.
  void take_ours(const std::string& flag) {
    const bool joined = args_[at_].find('=') != std::string::npos;
    const bool takes_value = command_.get_option_no_throw(flag)->get_items_expected_min() > 0;
    if (flag == "--hf-repo" && joined) mark(args_[at_], flag.size() + 1);
    if (!takes_value || joined || at_ + 1 >= args_.size()) return;
    ++at_;
    if (flag == "--hf-repo") mark(args_[at_], 0);
  }

  static void mark(std::string& value, size_t at) {
    if (!has_hub_prefix(std::string_view(value).substr(at))) value.insert(at, "hf://");
  }

  // A nonzero number of GPU layers without --device adds --device auto, which uses a GPU if the machine has one.
  void take_gpu_layers() {
    const size_t equals = args_[at_].find('=');
    const bool joined = equals != std::string::npos;
    if (!joined && at_ + 1 >= args_.size()) throw UsageError("{} needs a number of layers", args_[at_]);
    const std::string n = joined ? args_[at_].substr(equals + 1) : args_[at_ + 1];
    const auto is_device = [](const std::string& arg) { return arg == "--device" || arg.starts_with("--device="); };
    if (n != "0" && std::ranges::none_of(args_, is_device)) added_ = {"--device", "auto"};
    if (!has("--gpu-layers")) return erase(Takes::kValue);
    args_[at_].replace(0, std::min(equals, args_[at_].size()), "--gpu-layers");
    if (!joined) ++at_;
  }

  void replace(const char* flag, const char* value) {
    if (!has(flag)) return;
    args_[at_] = fmt::format("{}={}", flag, value);
  }

  // Removes the flag at `at_` and its value.
  void erase(Takes takes) {
    const bool joined = args_[at_].find('=') != std::string::npos;
    const std::string next = at_ + 1 < args_.size() ? args_[at_ + 1] : "";
    const bool is_switch = next == "on" || next == "off" || next == "auto" || next == "0" || next == "1";
    const bool has_value = !joined && (takes == Takes::kValue || (takes == Takes::kSwitch && is_switch));
    const size_t end = std::min(args_.size(), at_ + (has_value ? 2 : 1));
    args_.erase(args_.begin() + static_cast<ptrdiff_t>(at_), args_.begin() + static_cast<ptrdiff_t>(end));
    --at_;
  }

  const CLI::App& command_;
  Words args_, added_, notes_;
  size_t at_ = 0;
};

}  // namespace

std::string unknown_argument(const CLI::App& app) {
  const Words extras = app.remaining(true);
  const std::string unknown = extras.empty() ? "" : extras.front(), typed = unknown.substr(0, unknown.find('='));
  const CLI::App& command = app.get_subcommands().empty() ? app : *app.get_subcommands().front();
  if (const char* instead = instead_of(typed))
    return fmt::format("{} is a flag of llama.cpp that `ingot {}` does not have: {}; see ingot {} --help", typed,
                       command.get_name(), instead, command.get_name());
  Words names;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  const std::string nearest = typed.starts_with("-") ? nearest_to(typed, names) : "";
  return fmt::format("unknown argument '{}'{}; see ingot {} --help", printable(unknown),
                     nearest.empty() ? "" : fmt::format(" (nearest: {})", nearest), command.get_name());
}

Words known_arguments(const CLI::App& app, int argc, char** argv) {
  Words args = known_words(Words(argv + 1, argv + argc));
  if (args[0].starts_with("-")) return args;
  const CLI::App* command = find_command(app, args[0]);
  for (const CLI::App* part : command->get_subcommands({}))  // `bench images`
    if (args.size() > 1 && part->get_name() == args[1]) command = part;
  return Arguments(*command, std::move(args)).known();
}

}  // namespace ingot
