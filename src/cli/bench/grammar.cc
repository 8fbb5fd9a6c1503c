// ingot bench grammar: the time to compile schemas and to compute token masks for a model's vocabulary.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "base/error.h"
#include "cli/bench/model.h"
#include "cli/options/commands.h"
#include "cli/options/grammar.h"
#include "cli/options/options.h"

namespace ingot {
namespace {

using Clock = std::chrono::steady_clock;

struct Times {
  std::vector<double> us;
  void add(Clock::time_point begin) {
    us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  double at(double share) { return us[static_cast<size_t>(share * static_cast<double>(us.size() - 1))]; }
  void print(const char* name) {
    if (us.empty()) return;
    std::sort(us.begin(), us.end());
    const double mean = std::accumulate(us.begin(), us.end(), 0.0) / static_cast<double>(us.size());
    fmt::print("{:<8} {:>9} times: p50 {:.1f} us, mean {:.1f} us, p99 {:.1f} us, most {:.1f} us\n", name, us.size(),
               at(0.5), mean, at(0.99), us.back());
  }
};

struct Measured {
  Times compile, mask;
  int n_refused = 0, n_rejected = 0;
};

// Generates the valid instances as a model would, computing a mask before each token.
void measure(const GrammarCase& one, bool any_order, const Tokenizer& tokenizer,
             const std::shared_ptr<const GrammarVocabulary>& vocabulary, Measured& m) {
  try {
    const Clock::time_point begin = Clock::now();
    auto automaton = compile({.text = one.schema, .any_order = any_order, .deep_indents = true});
    m.compile.add(begin);
    const auto constraint = std::make_shared<Constraint>(std::move(automaton), vocabulary);
    for (const GrammarCase::Instance& test : one.tests) {
      if (!test.valid) continue;
      Matcher matcher(constraint);
      for (const int32_t token : tokenizer.encode(test.data, {.add_special = false})) {
        const Clock::time_point first = Clock::now();
        const auto mask = matcher.mask();
        m.mask.add(first);
        if (matcher.accept(token)) continue;
        ++m.n_rejected;
        break;
      }
    }
  } catch (const Error&) {
    ++m.n_refused;
  }
}

}  // namespace

void add_bench_grammar(CLI::App& bench) {
  struct Options {
    std::string file;
    ModelOptions model;
    bool ordered = false;
  };
  auto o = std::make_shared<Options>();
  CLI::App* command = bench.add_subcommand("grammar", "Measure the time to compile schemas and to compute token masks");
  command->add_option("FILE", o->file, "file of test cases, as for `ingot grammar check --jsonl`")->required();
  command->add_option("-m,--model", o->model.path, "model whose vocabulary is used; default: the built-in demo model");
  command->add_flag("--ordered", o->ordered, "require object members in the schema's order");
  command->callback([o] {
    const auto tokenizer = open_model_file(o->model)->tokenizer();
    const std::shared_ptr<const GrammarVocabulary> vocabulary =
        make_grammar_vocabulary(*tokenizer, tokenizer->n_vocab());
    Measured measured;
    const std::vector<GrammarCase> cases = read_grammar_cases(o->file);
    for (const GrammarCase& one : cases) measure(one, !o->ordered, *tokenizer, vocabulary, measured);
    fmt::print("{} tokens, {} schemas, {} of them refused; {} valid instances rejected\n", vocabulary->size(),
               cases.size(), measured.n_refused, measured.n_rejected);
    measured.compile.print("compile");
    measured.mask.print("mask");
  });
}

}  // namespace ingot
