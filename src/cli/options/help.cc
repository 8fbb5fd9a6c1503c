#include "cli/options/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ascii.h"
#include "cli/terminal/console.h"
#include "cli/terminal/wrap.h"

namespace ingot {
namespace {

constexpr size_t kMostLines = 25;
constexpr int kUsualColumns = 80, kFewColumns = 60;
constexpr size_t kTextColumn = 30;  // where CLI11 begins descriptions

// The common options of a command. A command that is not here shows its first ones.
struct CommonOptions {
  std::string_view command;
  std::string_view names;  // separated by spaces, in the order of the help
};
constexpr CommonOptions kCommon[] = {
    {"ingot run", "MODEL QUESTION -p -f --system -n --temp --json-schema --json --device -c -t"},
    {"ingot chat", "MODEL --system --resume --tools -n --temp --seed --device --gpu-layers -c -t"},
    {"ingot serve", "MODEL --host --port --api-key-file --alias --max-seqs -c --device --tp --gpu-layers --models-max"},
    {"ingot bench", "MODEL -p -n -r -t -o --device --shape --type"},
    {"ingot bench engine", "MODEL --requests --rate -p -n --max-seqs --shape --type --device --json"},
    {"ingot inspect", "MODEL --fit --memory --gpu-memory --tensors --template --kernels --device -c --json"},
    {"ingot embed", "MODEL -p -f --whole --prompt-name --pooling --json --npy -o --truncate --device"},
    {"ingot rerank", "MODEL -q -p -f -n --json --truncate --device -t"},
    {"ingot logits", "MODEL -p -f --tokens --all -o --device -c -t"},
    {"ingot perplexity", "MODEL -f --chunks --json --device -c -t"},
};

using Lines = std::vector<std::string>;

// Breaks a text between words. The lines after the first one are indented.
Lines broken(std::string_view text, int columns, size_t indent) {
  WordWrap wrap([=] { return std::max(8, columns - static_cast<int>(indent)); });
  std::string all = wrap.add(text);
  all += wrap.finish();
  Lines lines;
  for (size_t begin = 0; begin <= all.size();) {
    const size_t end = std::min(all.find('\n', begin), all.size());
    lines.push_back((lines.empty() ? "" : std::string(indent, ' ')) + all.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// A name and its description, which begins in `column` or, if there are few columns, on its own line.
void add_row(Lines& lines, const std::string& name, std::string_view text, size_t column, int columns) {
  if (columns < kFewColumns) column = 6;
  std::string first = "  " + name;
  if (text.empty() || first.size() + 2 > column) {
    lines.push_back(std::exchange(first, ""));
    if (text.empty()) return;
  }
  Lines texts = broken(text, columns, column);
  texts[0] = fmt::format("{:<{}}", first, column) + texts[0];
  lines.insert(lines.end(), texts.begin(), texts.end());
}

// A description up to its first semicolon, without what is in parentheses.
std::string brief(std::string_view text) {
  std::string said;
  int depth = 0;
  for (const char c : text.substr(0, text.find(';'))) {
    depth += c == '(';
    if (depth == 0 && !(c == ' ' && said.ends_with(' '))) said += c;
    depth -= c == ')';
  }
  std::erase(said, '\n');
  while (said.find(" ,") != said.npos) said.erase(said.find(" ,"), 1);
  return std::string(trim(said));
}

// "-n, --predict INT"
std::string spec_of(const CLI::Option& option) {
  if (option.get_positional()) return option.get_name(true);
  std::string spec = option.get_snames().empty() ? "" : "-" + option.get_snames().front();
  if (!option.get_lnames().empty()) spec += (spec.empty() ? "--" : ", --") + option.get_lnames().front();
  const std::string type = option.get_type_name();
  return option.get_items_expected_min() == 0 ? spec : spec + " " + type.substr(0, type.find_first_of(":={["));
}

bool is_help(const CLI::Option& option) {
  return option.get_lnames() == Lines{"help"} || option.get_lnames() == Lines{"help-all"};
}

std::vector<const CLI::Option*> options_of(const CLI::App& command) {
  return command.get_options([](const CLI::Option* one) { return !one->get_group().empty() && !is_help(*one); });
}

std::vector<const CLI::Option*> common_options(const CLI::App& command, const std::string& name) {
  std::vector<const CLI::Option*> common;
  const auto row = std::ranges::find(kCommon, name, &CommonOptions::command);
  if (row == std::end(kCommon)) return options_of(command);
  for (size_t begin = 0; begin < row->names.size();) {
    const size_t end = std::min(row->names.find(' ', begin), row->names.size());
    common.push_back(command.get_option(std::string(row->names.substr(begin, end - begin))));  // throws for none
    begin = end + 1;
  }
  return common;
}

Lines lines_of(std::string_view text) {
  Lines lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

std::string joined(const Lines& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* command, std::string name, CLI::AppFormatMode mode) const override {
    const int columns = terminal_columns(Stream::kOutput);
    const std::string all = CLI::Formatter::make_help(command, name, CLI::AppFormatMode::Normal);
    if (mode != CLI::AppFormatMode::Normal) return wrapped_help(all, columns);
    const int usual = columns > 0 ? columns : kUsualColumns;
    const std::string whole = wrapped_help(all, usual);
    if (lines_of(whole).size() <= kMostLines) return whole;
    const size_t usage = std::min(all.find("Usage: "), all.size());
    return short_help(*command, name, all.substr(usage, all.find('\n', usage) - usage), usual);
  }
};

}  // namespace

void set_help(CLI::App& app) {
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_help_flag("-h,--help", "Print the common options and exit");
  app.set_help_all_flag("--help-all", "Print all options and exit");
}

std::string short_help(const CLI::App& command, const std::string& name, const std::string& usage, int columns) {
  constexpr size_t kColumn = 24;
  Lines lines = broken(command.get_description(), columns, 0);
  const Lines used = broken(usage, columns, 4);
  lines.insert(lines.end(), used.begin(), used.end());
  lines.emplace_back();
  const std::vector<const CLI::Option*> options = common_options(command, name), all = options_of(command);
  const Lines end = broken(command.get_parent() == nullptr
                               ? "`ingot COMMAND --help` shows its options, `ingot --help-all` examples."
                               : fmt::format("All {} options: {} --help-all", all.size(), name),
                           columns, 0);
  for (const CLI::App* sub : command.get_subcommands({}))
    add_row(lines, sub->get_name(), sub->get_description(), command.get_parent() == nullptr ? 14 : kColumn, columns);
  size_t n_shown = 0;
  for (const CLI::Option* option : options) {
    if (command.get_parent() == nullptr) break;
    Lines with = lines;
    add_row(with, spec_of(*option), brief(option->get_description()), kColumn, columns);
    if (++n_shown > 1 && with.size() + end.size() + 1 > kMostLines) break;
    lines = std::move(with);
  }
  lines.emplace_back();
  const bool has_own = command.get_parent() != nullptr && command.get_footer() != command.get_parent()->get_footer();
  const Lines examples = has_own ? lines_of(wrapped_help(command.get_footer(), columns)) : Lines();
  if (lines.size() + examples.size() + 1 + end.size() <= kMostLines && !examples.empty()) {
    lines.insert(lines.end(), examples.begin(), examples.end());
    lines.emplace_back();
  }
  lines.insert(lines.end(), end.begin(), end.end());
  return joined(lines);
}

std::string wrapped_help(const std::string& text, int columns) {
  if (columns <= 0) return text;
  Lines lines;
  bool is_text = false;  // of the examples
  for (const std::string& line : lines_of(text)) {
    is_text = is_text || line.starts_with("Example");
    const size_t indent = std::min(line.find_first_not_of(' '), line.size());
    const std::string_view rest = std::string_view(line).substr(indent);
    const bool is_row = indent == 2 && line.size() > kTextColumn && line[kTextColumn - 1] == ' ' && !is_text;
    if (columns >= static_cast<int>(line.size())) {
      lines.push_back(line);
    } else if (is_row) {
      const std::string_view all = line;
      add_row(lines, std::string(trim(all.substr(0, kTextColumn))), trim(all.substr(kTextColumn)), kTextColumn,
              columns);
    } else if (indent >= kTextColumn) {  // the description of an option whose name has its own line
      const size_t column = columns < kFewColumns ? 6 : kTextColumn;
      Lines parts = broken(rest, columns, column);
      parts[0].insert(0, column, ' ');
      lines.insert(lines.end(), parts.begin(), parts.end());
    } else {
      Lines parts = broken(rest, columns - static_cast<int>(indent), is_text || rest.starts_with("Usage") ? 4 : 0);
      for (std::string& part : parts) lines.push_back(std::string(indent, ' ') + part);
    }
  }
  return joined(lines);
}

}  // namespace ingot
