// Architectures from files. Each family of the table runs from a file with the same row under another name, which the
// table does not have: the logits are those of transformers. Files with anything unknown are refused by one line.
#include "model/config/arch_file.h"

#include <gmock/gmock.h>

#include <random>

#include "base/error.h"
#include "model/golden_models.h"
#include "model/hf_models.h"
#include "io/gguf/writer.h"
#include "model/files/checkpoint.h"
#include "test_seed.h"

namespace ingot {
namespace {

using ArchJson = nlohmann::ordered_json;

template <class Enum>
std::string column_name(Enum value) {
  for (const auto& [name, meaning] : arch_names<Enum>())
    if (meaning == value) return name;
  return "";
}

// The row as a file, with other names. Columns that have their usual value are left out.
ArchJson file_of(const Arch& arch, const std::string& gguf_name, const std::string& hf_name) {
  const Arch usual;
  ArchJson json = {
      {"gguf_name", gguf_name}, {"hf_name", hf_name}, {"layers", arch.layers}, {"hf_defaults", arch.hf_defaults}};
  for (const auto& [name, flag] : arch_flags())
    if (arch.*flag != usual.*flag) json[name] = arch.*flag;
  for (const auto& [name, number] : arch_numbers())
    if (arch.*number != usual.*number) json[name] = arch.*number;
  json["gguf_rope"] = column_name(arch.gguf_rope), json["hf_rope"] = column_name(arch.hf_rope);
  json["activation"] = column_name(arch.activation);
  json["scoring"] = column_name(arch.scoring);
  json["norm"] = column_name(arch.norm);
  if (arch.local_theta == kSameTheta) json["local_theta"] = "same";
  if (arch.local_theta > 0) json["local_theta"] = arch.local_theta;
  if (arch.score_scale > 0) json["score_scale"] = arch.score_scale;
  return json;
}

const Arch& add_text(const std::string& text) { return add_arch(JsonDocument::parse(text, "row.json")); }

// The bytes of a model that differs from `file` only in the architecture's name.
std::vector<uint8_t> renamed_model(const Gguf& file, const std::string& from, const std::string& to) {
  GgufWriter writer;
  for (const auto& [key, value, offset] : file.metadata().entries()) {
    const bool is_name = key == "general.architecture", is_own = key.starts_with(from + ".");
    if (is_name) writer.set(key, to);
    if (!is_name) writer.set(is_own ? to + std::string(key.substr(from.size())) : std::string(key), value);
  }
  for (const TensorInfo& tensor : file.tensors()) {
    const auto bytes = file.data(tensor);
    writer.add_tensor(tensor.name, tensor.ggml_type, {tensor.shape.begin(), tensor.shape.begin() + tensor.n_dims},
                      std::vector<uint8_t>(bytes.begin(), bytes.end()));
  }
  return writer.to_bytes();
}

// A row is added once, because it stays in the table.
std::string added_name(const Arch& arch, const std::string& like) {
  static std::map<std::string, std::string> names;
  auto [name, is_new] = names.try_emplace(like, "from_file_" + like);
  if (is_new) add_text(file_of(arch, name->second, name->second).dump());
  return name->second;
}

TEST(ArchFile, FamiliesRunFromFiles) {
  std::set<std::string> families;
  for (const std::string& name : golden_names()) {
    const Golden golden = read_golden(name);
    const Gguf file = Gguf::open((kModels / (name + ".gguf")).string());
    const std::string from(file.metadata().get_string("general.architecture"));
    if (find_gguf_arch(from).bidirectional || !families.insert(from).second) continue;
    const std::string to = added_name(find_gguf_arch(from), from);
    const std::vector<uint8_t> bytes = renamed_model(file, from, to);
    const auto renamed = std::make_shared<const Gguf>(Gguf::parse(bytes, to));
    EXPECT_EQ(config_from_gguf(*renamed).arch->gguf_name, to);
    const RunnerOptions options{.backend = {.device = "ref"},
                                .n_ctx = n_ctx_of(name),
                                .max_batch_tokens = 512,
                                .max_logits = 512,
                                .kv_dtype = DType::kF32};
    Ranks runner(config_from_gguf(*renamed), gguf_source(renamed), options, nullptr);
    EXPECT_LT(largest_difference(all_logits(runner, golden.tokens, 512), golden.logits), 1e-4) << name;
  }
  EXPECT_GE(families.size(), 12u);
}

TEST(ArchFile, DirectoriesRunFromFiles) {
  for (const char* name : {"gemma3", "qwen3next", "deepseek3", "gpt_oss"}) {
    const Golden golden = read_golden(name);
    const HfCopy copy(name);
    const std::string from = nlohmann::json::parse(copy.read("config.json"))["model_type"];
    const std::string to = added_name(find_hf_arch(from), "hf_" + from);
    copy.edit("config.json", [&](auto& json) { json["model_type"] = to; });
    Ranks runner = load_hf(copy.path());
    EXPECT_LT(largest_difference(all_logits(runner, golden.tokens, 512), golden.logits), 1e-4) << name;
  }
}

std::string complaint_of(const std::string& text) {
  try {
    check_arch(JsonDocument::parse(text, "row.json"));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ArchFile, RefusesWhatIsNotInTheList) {
  const auto with = [](const std::string& more) { return R"({"gguf_name": "a", "hf_name": "b", )" + more + "}"; };
  EXPECT_EQ(complaint_of(with(R"("layers": "attention+delta_net/ffn attention/feed_forward+experts")")), "");
  const std::pair<std::string, const char*> bad[] = {
      {R"({"gguf_name": "a"})", "'hf_name' is missing"},
      {with(R"("code": "x")"), "'code'"},
      {with(R"("code": "x")"), "is no column"},
      {with(R"("norm": "batch")"), "expected one of rms, layer"},
      {with(R"("fused": 1)"), "'fused'"},
      {with(R"("window_period": -1)"), "'window_period'"},
      {with(R"("window_period": 1000000)"), "'window_period'"},
      {with(R"("local_theta": -3)"), "'local_theta'"},
      {with(R"("local_theta": 1e300)"), "'local_theta'"},
      {with(R"("layers": "attention/quantum")"), "'quantum' is no kind of layer part: known are ffn, attention"},
      {with(R"("layers": "attention//ffn")"), "'' is no kind"},
      {with(R"("layers": "attention/")"), "'' is no kind"},
      {with(R"("layers": "+attention")"), "'' is no kind"},
      {with(R"("layers": " attention")"), "has 0 parts"},
      {with(R"("layers": "")"), "expected 1 to"},
      {with(R"("hf_defaults": "[]")"), "'hf_defaults'"},
      {with(R"("hf_defaults": "{")"), "hf_defaults"},
      {with(R"("encoder": true)"), "an encoder is bidirectional"},
      {with(R"("hf_rope": "interleaved")"), "not supported"},
      {"[]", "row.json"},
  };
  for (const auto& [text, expected] : bad) EXPECT_THAT(complaint_of(text), testing::HasSubstr(expected)) << text;
  std::string parts = "attention", period = "attention";
  for (int i = 0; i < 8; ++i) parts += "/ffn";
  for (int i = 0; i < 64; ++i) period += " attention";
  EXPECT_THAT(complaint_of(with("\"layers\": \"" + parts + "\"")), testing::HasSubstr("has 9 parts"));
  EXPECT_THAT(complaint_of(with("\"layers\": \"" + period + "\"")), testing::HasSubstr("a period of 65 layers"));
}

// Any change of a row's text is refused by Error, or gives parts that exist.
TEST(ArchFile, AnyTextIsRefusedOrKnown) {
  const uint64_t seed = test_seed();
  std::mt19937_64 random(seed);
  SCOPED_TRACE(seed);
  std::vector<std::string> texts;
  for (const Arch& arch : all_archs()) texts.push_back(file_of(arch, "a", "b").dump());
  int n_accepted = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string text = texts[random() % texts.size()];
    for (size_t n = random() % 4; n > 0; --n) {
      const size_t at = random() % text.size();
      const int kind = static_cast<int>(random() % 3);
      if (kind == 0) text[at] = static_cast<char>(random() % 128);
      if (kind == 1) text.erase(at, 1 + random() % 8);
      if (kind == 2) text.insert(at, texts[random() % texts.size()].substr(0, random() % 60));
    }
    n_accepted += complaint_of(text).empty();
  }
  EXPECT_GT(n_accepted, 500);
  EXPECT_LT(n_accepted, 4000);
}

}  // namespace
}  // namespace ingot
