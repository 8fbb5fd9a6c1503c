// Writes the seeds of the GGUF fuzzer into the folder given as the first argument. Each seed uses one part of the
// format, so that few mutations lead to any fault.
#include <cstdio>
#include <filesystem>

#include "io/gguf/writer.h"

namespace ingot {
namespace {

GgufWriter scalars(uint32_t version) {
  GgufWriter w(version);
  w.set("u8", uint8_t{1});
  w.set("i8", int8_t{-1});
  w.set("u16", uint16_t{1});
  w.set("i16", int16_t{-1});
  w.set("u32", uint32_t{1});
  w.set("i32", int32_t{-1});
  w.set("u64", uint64_t{1});
  w.set("i64", int64_t{-1});
  w.set("f32", 1.0f);
  w.set("f64", 1.0);
  w.set("b", true);
  w.set("s", "text");
  return w;
}

GgufWriter arrays() {
  GgufWriter w;
  w.set("i", std::vector<int32_t>{1, 2, 3});
  w.set("f", std::vector<float>{0.5f});
  w.set("b", std::vector<bool>{true, false});
  w.set("s", std::vector<std::string>{"", "ab", "c"});
  w.set("n", std::vector<std::vector<uint16_t>>{{1, 2}, {}, {3}});
  w.set("m", std::vector<std::vector<std::string>>{{"x"}, {"y", "z"}});
  w.set("e", std::vector<uint64_t>{});
  return w;
}

GgufWriter tensors(uint32_t alignment) {
  GgufWriter w;
  w.set("general.alignment", alignment);
  w.add_tensor("f32", 0, {3, 2}, std::vector<uint8_t>(24, 1));
  w.add_tensor("f16", 1, {2, 1, 2, 1}, std::vector<uint8_t>(8, 2));
  w.add_tensor("q4_0", 2, {64}, std::vector<uint8_t>(36, 3));
  w.add_tensor("q4_k", 12, {256}, std::vector<uint8_t>(144, 4));
  w.add_tensor("i8", 24, {1}, std::vector<uint8_t>(1, 5));
  return w;
}

GgufWriter vocabulary() {
  GgufWriter w;
  w.set("general.architecture", "llama");
  w.set("llama.attention.head_count_kv", std::vector<int32_t>{1, 2});
  w.set("tokenizer.ggml.tokens", std::vector<std::string>{"<s>", "a", "b", "ab"});
  w.set("tokenizer.ggml.scores", std::vector<float>{0, -1, -2, -3});
  w.set("tokenizer.ggml.token_type", std::vector<int32_t>{3, 1, 1, 1});
  w.set("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
  return w;
}

}  // namespace
}  // namespace ingot

int main(int argc, char** argv) {
  using namespace ingot;
  if (argc != 2) {
    std::fputs("usage: seeds_gguf FOLDER\n", stderr);
    return 2;
  }
  const std::string folder = argv[1];
  std::filesystem::create_directories(folder);
  GgufWriter().write(folder + "/empty");
  scalars(2).write(folder + "/scalars_v2");
  scalars(3).write(folder + "/scalars_v3");
  arrays().write(folder + "/arrays");
  tensors(32).write(folder + "/tensors");
  tensors(1).write(folder + "/tensors_packed");
  tensors(64).write(folder + "/tensors_64");
  vocabulary().write(folder + "/vocabulary");
}
