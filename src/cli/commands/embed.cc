// ingot embed: converts texts to vectors for search, clustering or comparison.
#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/commands/npy.h"
#include "cli/options/commands.h"
#include "cli/options/embedder.h"
#include "cli/options/options.h"
#include "model/vectors/embedder.h"

namespace ingot {
namespace {

struct EmbedVerb : EmbedderFlags {
  std::string file, out, pooling, prompt_name;
  std::vector<std::string> prompts;
  bool normalize = true, whole = false, json = false, npy = false;
};

// Each -p is one text. Each line of a file or of standard input is one text, so output rows correspond to lines.
std::vector<std::string> read_texts(const EmbedVerb& o) {
  if (!o.whole || (!o.prompts.empty() && o.file.empty())) return read_lines(o.prompts, o.file, "embed");
  std::vector<std::string> texts = o.prompts;
  texts.push_back(read_prompt({.text = {}, .file = o.file, .has_text = false}, "embed"));
  return texts;
}

// The prompt to put before each text.
std::string prefix_of(const EmbedFacts& facts, const std::string& wanted) {
  if (auto prompt = facts.find_prompt(wanted)) return std::move(*prompt);
  throw UsageError("the model has no prompt '{}'; it has {}", printable(wanted, 64), facts.prompt_names());
}

std::string rendered(const Embedder& embedder, const std::vector<float>& rows, const std::vector<int>& row_texts,
                     size_t n_tokens, bool json) {
  const size_t dim = embedder.dim();
  if (!json) {
    std::string out;
    for (size_t row = 0; row < row_texts.size(); ++row)
      out += fmt::format("{:.8g}\n", fmt::join(rows.begin() + static_cast<int64_t>(row * dim),
                                               rows.begin() + static_cast<int64_t>((row + 1) * dim), " "));
    return out;
  }
  nlohmann::ordered_json data = nlohmann::ordered_json::array();
  for (size_t row = 0; row < row_texts.size(); ++row)
    data.push_back({{"object", "embedding"},
                    {"index", row_texts[row]},
                    {"embedding", std::vector<float>(rows.begin() + static_cast<int64_t>(row * dim),
                                                     rows.begin() + static_cast<int64_t>((row + 1) * dim))}});
  const nlohmann::ordered_json all = {{"object", "list"},
                                      {"data", std::move(data)},
                                      {"model", embedder.name()},
                                      {"usage", {{"prompt_tokens", n_tokens}, {"total_tokens", n_tokens}}}};
  return all.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::unique_ptr<Embedder> open(const EmbedVerb& o) {
  EmbedOptions options;
  if (!o.pooling.empty()) options.pooling = o.pooling;
  options.normalize = o.normalize;
  return open_embedder(o, options);
}

void embed(const EmbedVerb& o) {
  if (o.npy && o.out.empty()) throw UsageError("--npy needs a file: give its name with -o");
  const std::vector<std::string> texts = read_texts(o);
  const auto embedder = open(o);
  const std::string prefix = prefix_of(embedder->facts(), o.prompt_name);
  std::vector<std::vector<int32_t>> tokens;
  std::vector<int> row_texts;  // the text that each row of the result belongs to
  size_t n_tokens = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    tokens.push_back(embedder->tokenizer().encode(prefix + texts[i]));
    if (o.truncate) tokens.back() = embedder->cut(std::move(tokens.back()));
    n_tokens += tokens.back().size();
    row_texts.insert(row_texts.end(), embedder->pooling() == "none" ? tokens.back().size() : 1, static_cast<int>(i));
  }
  const std::vector<int> n_before(tokens.size(), embedder->prompt_tokens(prefix));
  const std::vector<float> rows = embedder->embed(tokens, n_before);
  if (o.npy) return write_npy(o.out, rows, static_cast<int64_t>(row_texts.size()), embedder->dim());
  const std::string text = rendered(*embedder, rows, row_texts, n_tokens, o.json);
  if (o.out.empty()) {
    std::fwrite(text.data(), 1, text.size(), stdout);
  } else {
    write_file(o.out, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  }
}

}  // namespace

void add_embed(CLI::App& app) {
  auto o = std::make_shared<EmbedVerb>();
  CLI::App* command = app.add_subcommand("embed", "Turn texts into vectors");
  command->add_option("-p,--prompt", o->prompts, "text to embed (repeatable)");
  command->add_option("-f,--file", o->file,
                      "file with a text in each line, added after those of -p; - for standard input");
  command->add_flag("--whole", o->whole, "treat the file as one text");
  command->add_option("--prompt-name", o->prompt_name,
                      "put the model's prompt of this name before each text, such as query or document");
  command->add_option(
      "--pooling", o->pooling,
      "pooling of token vectors: cls, mean, last, or none (a vector for each token); default: the model's");
  command->add_flag("--normalize,!--no-normalize", o->normalize, "scale vectors to length 1 (default)");
  auto* json = command->add_flag("--json", o->json, "print one JSON object in the format of OpenAI's API");
  command->add_flag("--npy", o->npy, "write a NumPy file: float32 [texts, dimensions]")->excludes(json);
  command->add_option("-o,--out", o->out, "write to this file instead of standard output");
  add_embedder_flags(*command, *o, "embedding model", "text");
  command->footer(
      "Examples:\n  ingot embed bge-small.gguf -p \"a text\" -p \"another\" --json\n"
      "  ingot embed nomic-embed.gguf -f lines.txt --npy -o vectors.npy\n"
      "  ingot embed ORG/REPO -p \"what is it?\" --prompt-name query");
  command->callback([o] { embed(*o); });
}

}  // namespace ingot
