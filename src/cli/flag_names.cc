#include "cli/flag_names.h"

#include <algorithm>
#include <string_view>

namespace ingot {
namespace {

// A field of the library, and a name of the flag that sets the field.
struct FlagOfField {
  std::string_view field;
  const char* flag;
};
constexpr FlagOfField kFlags[] = {
    {"max_tokens", "-n"},
    {"temperature", "--temp"},
    {"top_k", "--top-k"},
    {"top_p", "--top-p"},
    {"min_p", "--min-p"},
    {"typical_p", "--typical-p"},
    {"repetition_penalty", "--repeat-penalty"},
    {"presence_penalty", "--presence-penalty"},
    {"frequency_penalty", "--frequency-penalty"},
    {"penalty_window", "--repeat-last-n"},
    {"dry_multiplier", "--dry-multiplier"},
    {"dry_base", "--dry-base"},
    {"dry_allowed_length", "--dry-allowed-length"},
    {"dry_penalty_last_n", "--dry-penalty-last-n"},
    {"top_n_sigma", "--top-nsigma"},
    {"xtc_probability", "--xtc-probability"},
    {"xtc_threshold", "--xtc-threshold"},
    {"dynatemp_range", "--dynatemp-range"},
    {"dynatemp_exponent", "--dynatemp-exp"},
    {"mirostat", "--mirostat"},
    {"mirostat_tau", "--mirostat-ent"},
    {"mirostat_eta", "--mirostat-lr"},
    {"n_logprobs", "--logprobs"},
    {"logit_bias", "--logit-bias"},
    {"n_ctx", "-c"},
    {"max_batch_tokens", "-b"},
    {"max_seqs", "--max-seqs"},
    {"n_kv_tokens", "--kv-tokens"},
    {"n_snapshots", "--snapshots"},
};

const CLI::App& deepest(const CLI::App& app) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  return chosen.empty() ? app : deepest(*chosen.front());
}

bool is_typed(const std::vector<std::string>& args, const std::string& flag) {
  return std::ranges::any_of(args, [&](const std::string& arg) {
    return arg == flag || arg.starts_with(flag + "=") || (flag.size() == 2 && arg.starts_with(flag));
  });
}

std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

// The name in the spelling of the arguments.
std::string spelled(const CLI::Option& option, const std::vector<std::string>& args, const std::string& name) {
  if (is_typed(args, name)) return name;
  for (const std::string& other : names_of(option))
    if (is_typed(args, other)) return other;
  return name;
}

}  // namespace

std::string with_flag_name(const CLI::App& app, const std::vector<std::string>& args, std::string message) {
  const CLI::App& command = deepest(app);
  const std::string field = message.substr(0, message.find_first_of(" :="));
  const auto row = std::ranges::find(kFlags, field, &FlagOfField::field);
  const std::string name = row == std::end(kFlags) ? field : row->flag;
  const CLI::Option* option = name.starts_with('-') ? command.get_option_no_throw(name) : nullptr;
  return option == nullptr ? message : message.replace(0, field.size(), spelled(*option, args, name));
}

}  // namespace ingot
