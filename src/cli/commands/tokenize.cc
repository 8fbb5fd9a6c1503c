// ingot tokenize: converts text to token ids.
#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "cli/options/commands.h"
#include "cli/options/options.h"

namespace ingot {
namespace {

struct TokenizeOptions {
  std::string model, text, file;
  HubFlags hub;
  bool has_text = false, ids = false, json = false, no_special = false, parse_special = false;
};

void tokenize(const TokenizeOptions& o) {
  const auto tokenizer = open_model_file({.path = o.model, .hub = o.hub})->tokenizer();
  const std::string text = o.has_text ? o.text : read_text({.file = o.file, .ways = "TEXT or -f FILE"}, "tokenize");
  const std::vector<int32_t> ids = tokenizer->encode(
      text, {.add_special = !o.no_special, .parse_special = o.parse_special, .repeats_bos = true});
  if (o.json) {
    nlohmann::ordered_json out = {{"ids", ids}, {"tokens", nlohmann::ordered_json::array()}};
    for (int32_t id : ids) out["tokens"].push_back(tokenizer->token_bytes(id));
    fmt::print("{}\n", out.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  } else if (o.ids) {
    if (!ids.empty()) fmt::print("{}\n", fmt::join(ids, ","));
  } else {
    for (int32_t id : ids) fmt::print("{:>8}  {}\n", id, printable(tokenizer->token_bytes(id)));
  }
}

}  // namespace

void add_tokenize(CLI::App& app) {
  auto o = std::make_shared<TokenizeOptions>();
  CLI::App* command = app.add_subcommand("tokenize", "Show the tokens of a text");
  command
      ->add_option(
          "MODEL,-m,--model,--hf-repo", o->model,
          "GGUF file (a vocabulary is enough), Hugging Face model directory, or ORG/REPO[:QUANT] of the Hub (also -hf)")
      ->required();
  command->add_option("TEXT", o->text, "text to tokenize; default: standard input")->each([o](const std::string&) {
    o->has_text = true;
  });
  command->add_option("-f,--file", o->file, "read the text from this file; - for standard input");
  auto* ids = command->add_flag("--ids", o->ids, "print only the token ids, on one line with commas");
  command->add_flag("--json", o->json, "print a JSON object with ids and tokens")->excludes(ids);
  command->add_flag("--no-special", o->no_special, "do not add BOS and EOS");
  command->add_flag("--parse-special", o->parse_special, "parse names of control tokens in the text as control tokens");
  add_hub_options(*command, o->hub);
  command->footer(
      "Examples:\n  ingot tokenize model.gguf \"Hello, world\"\n  ingot tokenize model.gguf --ids --no-special < "
      "text.txt");
  command->callback([o] { tokenize(*o); });
}

}  // namespace ingot
