// Times the tokenizers on a mebibyte of many kinds of text, prose and repetitive text. The tokenizers are one of each
// family from the goldens, or those of the named models (GGUF files, or directories with a tokenizer.json). Usage:
// tokenizer_bench [--benchmark_filter=REGEX ...] [MODEL ...]
#include <benchmark/benchmark.h>

#include <filesystem>

#include "base/error.h"
#include "base/log.h"
#include "io/gguf/tokenizer.h"
#include "io/huggingface/tokenizer.h"
#include "text/tokenizers/tokenizer.h"

namespace ingot {
namespace {

constexpr const char* kFamilies[] = {
    "hf/llama3", "hf/qwen2", "hf/spm_legacy", "hf/spm_gemma", "encoders/bert_uncased", "encoders/xlm_roberta"};

struct Kind {
  const char* name;
  std::string unit;
};
const Kind kKinds[] = {
    {"prose", "It was not the first time that people had come to look for water there; \"many\", he said, \"have gone before you.\"\n"},
    {"code", "for (int i = 0; i < n; ++i) {\n\tsum += a[i] * 0x1F;\n}\n"},
    {"chinese", "\u7684\u4e00\u662f\u4e0d\u4e86\u4eba\u6211\u5728\u6709\u4ed6\u8fd9\u4e2d\u5927\u6765\u4e0a\u56fd\u3002"},
    {"base64", "aGVsbG8gd29ybGQ"},
    {"letter", "A"},
    {"space", " "},
    {"newline", "\n"},
    {"digit", "7"},
    {"marks", "e\u0301\u0302"},
    {"family", "\U0001F468\u200D\U0001F469\u200D\U0001F467"},
    {"no_text", "\xFF"},
};

std::unique_ptr<Tokenizer> load(const std::string& path) {
  if (std::filesystem::is_directory(path)) return Tokenizer::create(read_hf_tokenizer(HfDirectory(path), {})->spec);
  const Gguf file = Gguf::open(path);
  return Tokenizer::create(tokenizer_spec(file));
}

void time_kind(benchmark::State& state, const Tokenizer& tokenizer, const Kind& kind) {
  std::string text;
  while (text.size() < 1u << 20) text += kind.unit;
  size_t n_tokens = 0;
  for (auto _ : state) n_tokens = tokenizer.encode(text).size();
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
  state.counters["tokens"] = static_cast<double>(n_tokens);
}

}  // namespace
}  // namespace ingot

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  ingot::set_log_level(ingot::LogLevel::kError);
  std::vector<std::string> paths(argv + 1, argv + argc);
  if (paths.empty())
    for (const char* family : ingot::kFamilies) paths.push_back(std::string(INGOT_TEST_DATA "/tokenizers/") + family);
  try {
    std::vector<std::unique_ptr<ingot::Tokenizer>> tokenizers;
    for (const std::string& path : paths) {
      tokenizers.push_back(ingot::load(path));
      for (const ingot::Kind& kind : ingot::kKinds)
        benchmark::RegisterBenchmark(
            (std::filesystem::path(path).filename().string() + "/" + kind.name).c_str(),
            [t = tokenizers.back().get(), &kind](benchmark::State& state) { time_kind(state, *t, kind); })
            ->Unit(benchmark::kMillisecond);
    }
    benchmark::RunSpecifiedBenchmarks();
  } catch (const ingot::Error& error) {
    std::fprintf(stderr, "tokenizer_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
