// The commands of the program, one file for each. A command adds a subcommand, and CLI11 calls it after parsing.
#pragma once
#include <CLI/CLI.hpp>

namespace ingot {

void add_run(CLI::App& app);
void add_chat(CLI::App& app);
void add_serve(CLI::App& app);
void add_inspect(CLI::App& app);
void add_bench(CLI::App& app);
void add_tokenize(CLI::App& app);
void add_logits(CLI::App& app);
void add_perplexity(CLI::App& app);
void add_embed(CLI::App& app);
void add_rerank(CLI::App& app);
void add_transcribe(CLI::App& app);
void add_grammar(CLI::App& app);
void add_template(CLI::App& app);
void add_pull(CLI::App& app);
void add_ls(CLI::App& app);
void add_rm(CLI::App& app);
void add_quantize(CLI::App& app);
void add_convert(CLI::App& app);
void add_devices(CLI::App& app);
void add_doctor(CLI::App& app);

}  // namespace ingot
