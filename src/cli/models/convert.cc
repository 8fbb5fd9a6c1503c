// ingot convert: writes a model directory as one GGUF file, which other programs can also read.
#include "base/error.h"
#include "cli/models/quantize.h"
#include "cli/options/commands.h"
#include "io/huggingface/directory.h"
#include "model/files/quant_mix.h"

namespace ingot {

void add_convert(CLI::App& app) {
  auto o = std::make_shared<WriteOptions>();
  o->type = "auto";
  o->allow_decode = true;
  CLI::App* command = app.add_subcommand("convert", "Convert a model directory to a GGUF file");
  command->add_option("DIR", o->in, "directory with config.json, safetensors and tokenizer.json, or ORG/REPO")
      ->required();
  command->add_option("OUT", o->out, "GGUF file to write")->required();
  command
      ->add_option("--type,--outtype", o->type,
                   "type of the weights: auto (as they are stored) or one of " + mix_names())
      ->capture_default_str();
  add_write_options(*command, *o);
  command->footer(
      "Weights of types that GGUF does not have are written as F16, or as the type given with --type.\n"
      "Examples:\n  ingot convert Qwen3-0.6B/ qwen3.gguf\n  ingot convert Llama-3.2-1B/ llama.gguf --type Q4_K_M");
  command->callback([o] {
    o->in = resolve_model(o->in, o->hub);
    if (!HfDirectory::is_one(o->in))
      throw Error("'{}' is not a model directory (with a config.json): for a GGUF file there is `ingot quantize`",
                  printable(o->in));
    write_model(*o);
  });
}

}  // namespace ingot
