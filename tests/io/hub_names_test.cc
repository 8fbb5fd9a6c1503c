// Names of the Hub, quant tags, and the choice of a model's files.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <random>

#include "base/file.h"
#include "io/gguf/projector.h"
#include "io/hub/choice.h"
#include "io/hub/directory_files.h"
#include "io/hub/name.h"
#include "io/refused.h"
#include "test_seed.h"

namespace ingot {
namespace {

using Paths = std::vector<std::string>;

TEST(HubName, Accepted) {
  struct Case {
    const char *text, *repo, *tag;
    bool is_explicit;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"org/repo", "org/repo", "", false},
           {"Qwen/Qwen2.5-0.5B_x:Q4_K_M", "Qwen/Qwen2.5-0.5B_x", "Q4_K_M", false},
           {"a/b:UD-Q2_K_XL", "a/b", "UD-Q2_K_XL", false},
           {"hf://org/repo:q8_0", "org/repo", "q8_0", true},
           {"hf.co/org/repo", "org/repo", "", true},
           {"https://huggingface.co/org/repo", "org/repo", "", true},
           {"hf://hf.co/org/repo", "org/repo", "", true},
           {"_x/y_", "_x/y_", "", false},
       }) {
    const auto name = parse_hub_name(c.text);
    ASSERT_TRUE(name) << c.text;
    EXPECT_EQ(name->repo, c.repo);
    EXPECT_EQ(name->tag, c.tag) << c.text;
    EXPECT_EQ(name->explicit_hub, c.is_explicit) << c.text;
  }
}

// The rules are those of huggingface_hub.utils.validate_repo_id; an organisation is required, too.
TEST(HubName, Refused) {
  for (const char* text :
       {"",      "repo",   "/",          "a/",       "/b",     "a/b/c",         "/a/b",   "./a",    "a/.",
        "a/..",  "../b",   ".a/b",       "a/-b",     "a-/b",   "a/b.",          "a--b/c", "a/b..c", "a/b.git",
        "a b/c", "a/b:",   "a/b:c:d",    "a/b:../x", "a/b:-x", "caf\xc3\xa9/b", "a/b\n",  "a\\b/c", "~/b",
        "hf://", "hf://x", "hf://a/b/c", "C:/x",     "a/b?c",  "a/b#c",         "a/b%2e"})
    EXPECT_FALSE(parse_hub_name(text)) << text;
  EXPECT_FALSE(parse_hub_name(std::string_view("a/b\0c", 5)));
  EXPECT_FALSE(parse_hub_name("a/" + std::string(97, 'x')));
  EXPECT_TRUE(parse_hub_name("a/" + std::string(96, 'x')));
}

TEST(HubName, Paths) {
  for (const char* path :
       {"a", "a/b.gguf", "1_Pooling/config.json", ".gitattributes", "a b", "\xc3\xa9.gguf", "...", "a/..b"})
    EXPECT_TRUE(is_hub_path(path)) << path;
  for (const char* path : {"", "/", "/a", "a/", "a//b", "..", "a/..", "../a", "a/../b", ".", "./a", "a\\b", "C:x",
                           "a\nb", "\x7f", "\x1b[m"})
    EXPECT_FALSE(is_hub_path(path)) << path;
  EXPECT_FALSE(is_hub_path(std::string_view("a\0b", 3)));
  EXPECT_FALSE(is_hub_path(std::string(256, 'x')));
  EXPECT_TRUE(is_hub_revision("refs/pr/1"));
  EXPECT_FALSE(is_hub_revision("refs/../main"));
  EXPECT_TRUE(is_commit("0123456789abcdef0123456789abcdef01234567"));
  EXPECT_FALSE(is_commit("0123456789ABCDEF0123456789abcdef01234567"));
  EXPECT_FALSE(is_commit("0123456789abcdef0123456789abcdef0123456"));
}

// Real names from the Hub.
TEST(QuantLabel, OfNames) {
  const std::pair<const char*, const char*> cases[] = {
      {"llama-2-7b-chat.Q2_K.gguf", "Q2_K"},
      {"mistral-7b-instruct-v0.2.Q5_K_M.gguf", "Q5_K_M"},
      {"gemma-2b-it-q4_k_m.gguf", "Q4_K_M"},
      {"qwen2.5-0.5b-instruct-fp16.gguf", "FP16"},
      {"Llama-3.2-1B-Instruct-BF16.gguf", "BF16"},
      {"model-f16-big-endian.gguf", "F16"},
      {"Qwen3-4B-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"},
      {"Qwen3-4B-UD-IQ1_S.gguf", "UD-IQ1_S"},
      {"X-IQ2_XXS.gguf", "IQ2_XXS"},
      {"X-IQ3_M.gguf", "IQ3_M"},
      {"X.i1-IQ4_XS.gguf", "IQ4_XS"},
      {"gpt-oss-20b-mxfp4.gguf", "MXFP4"},
      {"gpt-oss-120b-MXFP4_MOE-00002-of-00003.gguf", "MXFP4_MOE"},
      {"X-Q3_K_L.gguf", "Q3_K_L"},
      {"X-Q8_0-from-F16.gguf", "F16"},  // the last one
      {"X-TQ1_0.gguf", "TQ1_0"},
      {"UD-Q2_K_XL/big-00001-of-00002.gguf", "UD-Q2_K_XL"},
      {"Q4_K_M/big-Q8_0-00001-of-00002.gguf", "Q8_0"},
      {"Q4_K_M/sub/big.gguf", "Q4_K_M"},
      {"model.gguf", ""},
      {"XQ4_0.gguf", ""},
      {"X-Q4_K_M1.gguf", ""},
      {"ggml-model-Q4_0_4_4.gguf", "Q4_0"},
  };
  for (const auto& [path, label] : cases) EXPECT_EQ(quant_label(path), label) << path;
}

TEST(GgufModels, GroupsPartsAndPassesOverWhatIsNoModel) {
  const Paths paths = {"MMPROJ-F16.gguf",
                       "a-Q4_0-00001-of-00002.gguf",
                       "a-Q4_0-00002-of-00002.gguf",
                       "a-Q8_0-00001-of-00002.gguf",
                       "a.imatrix.gguf",
                       "b-00003-of-00002.gguf",
                       "b.gguf",
                       "config.json",
                       "dir/mtp-Q8_0.gguf",
                       "x.GGUF"};
  const auto models = gguf_models(paths);
  ASSERT_EQ(models.size(), 4u);
  EXPECT_EQ(models[0].files, (Paths{paths[1], paths[2]}));
  EXPECT_EQ(models[0].label, "Q4_0");
  EXPECT_EQ(models[1].files, Paths{paths[3]});
  EXPECT_EQ(models[1].n_parts, 2u);
  EXPECT_EQ(models[2].n_parts, 1u);  // part 3 of 2 is an ordinary name
  EXPECT_EQ(models[3].label, "b.gguf");
}

std::string chosen(const Paths& paths, const std::string& tag, const std::string& file = "") {
  Paths sorted = paths;
  std::sort(sorted.begin(), sorted.end());
  return choose_files("org/repo", sorted, tag, file).open;
}

TEST(ChooseFiles, ByTag) {
  const Paths paths = {"m-UD-Q4_K_M.gguf",  "m-Q4_K_M.gguf",       "m-Q8_0.gguf",
                       "m-UD-Q6_K_XL.gguf", "m-distilled-v2.gguf", "mmproj-Q5_0.gguf"};
  EXPECT_EQ(chosen(paths, ""), "m-Q4_K_M.gguf");
  EXPECT_EQ(chosen(paths, "LATEST"), "m-Q4_K_M.gguf");
  EXPECT_EQ(chosen(paths, "ud-q4_k_m"), "m-UD-Q4_K_M.gguf");
  EXPECT_EQ(chosen(paths, "q6_k_xl"), "m-UD-Q6_K_XL.gguf");
  EXPECT_EQ(chosen(paths, "V2"), "m-distilled-v2.gguf");
  EXPECT_EQ(chosen({"m-Q8_0.gguf", "m-F16.gguf"}, ""), "m-Q8_0.gguf");
  EXPECT_EQ(chosen({"m-F32.gguf", "m-F16.gguf"}, ""), "m-F16.gguf");
  EXPECT_EQ(chosen(paths, "", "mmproj-Q5_0.gguf"), "mmproj-Q5_0.gguf");
  for (const char* tag : {"Q5_0", "Q4", "Q4_K", "K_M", "Q4_K_", "distill", "gguf2"}) {
    const std::string message = refusal([&] { chosen(paths, tag); });
    EXPECT_NE(message.find("it has Q4_K_M, Q8_0, UD-Q4_K_M, UD-Q6_K_XL, m-distilled-v2.gguf"), message.npos) << message;
  }
  EXPECT_NE(refusal([&] { chosen(paths, "", "x.gguf"); }).find("has no file 'x.gguf'"), std::string::npos);
}

TEST(ChooseFiles, TheProjectorBelongsToTheModel) {
  EXPECT_EQ(projector_of({"m-Q8_0.gguf"}), "");
  EXPECT_EQ(projector_of({"m.gguf", "mmproj-Q8_0.gguf"}), "mmproj-Q8_0.gguf");
  EXPECT_EQ(projector_of({"m.gguf", "mmproj-BF16.gguf", "mmproj-F16.gguf", "mmproj-F32.gguf"}), "mmproj-F16.gguf");
  EXPECT_EQ(projector_of({"m.gguf", "mmproj-BF16.gguf", "mmproj-F32.gguf"}), "mmproj-BF16.gguf");
  EXPECT_EQ(projector_of({"m.gguf", "x-mmproj-model-f16.gguf", "mmproj.json"}), "x-mmproj-model-f16.gguf");
  const Paths paths = {"m-Q8_0.gguf", "mmproj-F16.gguf"};
  EXPECT_EQ(choose_files("org/repo", paths, "Q8_0", "").files, paths);
  EXPECT_EQ(choose_files("org/repo", paths, "", "m-Q8_0.gguf").files, paths);
  EXPECT_EQ(choose_files("org/repo", paths, "", "mmproj-F16.gguf").files, Paths{"mmproj-F16.gguf"});
}

TEST(ChooseFiles, SplitModelsWholeOrNotAtAll) {
  const Paths parts = {"m-Q8_0-00001-of-00003.gguf", "m-Q8_0-00002-of-00003.gguf", "m-Q8_0-00003-of-00003.gguf"};
  EXPECT_EQ(choose_files("o/r", parts, "Q8_0", "").files, parts);
  EXPECT_EQ(choose_files("o/r", parts, "", parts[1]).files, parts);  // the name of any part selects all parts
  for (size_t gone = 0; gone < 3; ++gone) {
    Paths some = parts;
    some.erase(some.begin() + static_cast<std::ptrdiff_t>(gone));
    EXPECT_NE(refusal([&] { choose_files("o/r", some, "", ""); }).find("split into 3 files, but only 2"),
              std::string::npos);
  }
}

std::string scratch_file(const char* name, std::string_view text) {
  const std::string path = testing::TempDir() + fmt::format("hub_names_{}_{}", ::getpid(), name);
  write_file(path, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  return path;
}

// Sorted. `file` is modules.json or the index.
Paths files_of(const Paths& paths, const std::string& file) {
  Paths files = directory_files("o/r", paths, [&](const std::string&) { return file; });
  std::sort(files.begin(), files.end());
  return files;
}

TEST(ChooseFiles, DirectoriesOfCTranslate2) {
  const Paths paths = {"README.md", "config.json", "model.bin", "preprocessor_config.json", "tokenizer.json",
                       "vocabulary.json"};
  EXPECT_TRUE(choose_files("o/r", paths, "", "").is_directory());
  EXPECT_EQ(files_of(paths, "no index is read"), (Paths{"config.json", "model.bin", "tokenizer.json"}));
  // Without a vocabulary, model.bin is something else, such as a pickle.
  EXPECT_NE(refusal([] { choose_files("o/r", {"config.json", "model.bin", "tokenizer.json"}, "", ""); }).find("no model"),
            std::string::npos);
}

TEST(ChooseFiles, Directories) {
  const Paths paths = {"README.md",
                       "chat_template.jinja",
                       "config.json",
                       "consolidated.safetensors",
                       "model-00001-of-00001.safetensors",
                       "model.safetensors.index.json",
                       "modeling.py",
                       "pytorch_model.bin",
                       "tokenizer.json"};
  const HubChoice choice = choose_files("o/r", paths, "", "");
  EXPECT_TRUE(choice.is_directory());
  EXPECT_EQ(choice.label, "safetensors");
  const std::string index = scratch_file("index.json", R"({"weight_map": {"a": "model-00001-of-00001.safetensors"}})");
  EXPECT_EQ(files_of(paths, index), (Paths{"chat_template.jinja", "config.json", "model-00001-of-00001.safetensors",
                                           "model.safetensors.index.json", "tokenizer.json"}));
  Paths one = paths;
  one.insert(one.begin() + 5, "model.safetensors");  // the loader takes this file first
  EXPECT_EQ(files_of(one, "no index is read"),
            (Paths{"chat_template.jinja", "config.json", "model.safetensors", "tokenizer.json"}));
  one.insert(one.begin() + 4, "m-F16.gguf");
  ASSERT_TRUE(std::is_sorted(one.begin(), one.end()));
  EXPECT_EQ(choose_files("o/r", one, "", "").label, "F16");
  EXPECT_EQ(choose_files("o/r", one, "SafeTensors", "").label, "safetensors");
  EXPECT_NE(refusal([&] { choose_files("o/r", paths, "Q8_0", ""); }).find("leave the tag out"), std::string::npos);
  EXPECT_NE(refusal([] {
              choose_files("o/r", {"config.json", "pytorch_model.bin"}, "", "");
            }).find("no model: expected GGUF"),
            std::string::npos);
  EXPECT_NE(refusal([] { choose_files("o/r", {}, "", ""); }).find("no model: expected GGUF"), std::string::npos);
}

TEST(DirectoryFiles, ModulesNameFolders) {
  const Paths paths = {"0_Transformer/config.json",
                       "0_Transformer/model.safetensors",
                       "0_Transformer/tokenizer.json",
                       "0_Transformer/sentence_roberta_config.json",
                       "README.md",
                       "dense/config.json",
                       "dense/model.safetensors",
                       "dense/pytorch_model.bin",
                       "modules.json",
                       "other/config.json",
                       "tokenizer.json"};
  Paths sorted = paths;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_TRUE(has_weights(sorted));
  const std::string modules =
      scratch_file("modules.json", R"([{"path": "0_Transformer"}, {"path": "dense"}, {"path": "dense"}])");
  EXPECT_EQ(files_of(sorted, modules),
            (Paths{"0_Transformer/config.json", "0_Transformer/model.safetensors",
                   "0_Transformer/sentence_roberta_config.json", "0_Transformer/tokenizer.json", "dense/config.json",
                   "dense/model.safetensors", "modules.json"}));
  EXPECT_NE(refusal([&] {
              files_of(sorted, scratch_file("other.json", R"([{"path": "other"}])"));
            }).find("'other/', has no config.json with"),
            std::string::npos);
}

TEST(DirectoryFiles, HostileModules) {
  const Paths paths = {"config.json", "model.safetensors", "modules.json"};
  auto refused = [&](const std::string& text) {
    return refusal([&] { files_of(paths, scratch_file("hostile.json", text)); });
  };
  for (const char* path : {"..", "../x", "/etc", "a/b", "a\\\\b", ".", ".git"})
    EXPECT_NE(refused(fmt::format(R"([{{"path": ""}}, {{"path": "{}"}}])", path)).find("is not the name of a folder"),
              std::string::npos)
        << path;
  EXPECT_NE(refused("[]").find("0 modules: expected 1 to 64"), std::string::npos);
  EXPECT_NE(refused("[" + std::string(2 * 999'999, ' ') + "]").find("1000000"), std::string::npos);
  std::string many = R"([{"path": ""})";
  for (int i = 0; i < 64; ++i) many += fmt::format(R"(, {{"path": "{}"}})", i);
  EXPECT_NE(refused(many + "]").find("65 modules"), std::string::npos);
  for (const char* text : {"{}", "7", "[7]", R"([{"path": 7}])", "[{}]", "version https://git-lfs"})
    EXPECT_FALSE(refused(text).empty()) << text;
}

// For any names: the chosen files are among them, each once, and a label selects a model with that label.
TEST(ChooseFiles, RandomNames) {
  const auto seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const Paths pieces = {
      "a",      "-",     ".",       "_", "/", "Q4_K_M", "q8_0", "UD-", "F16", "-00001-of-00002", "-00002-of-00002",
      "mmproj", ".gguf", "IQ2_XXS", "K", "4"};
  for (int round = 0; round < 2000; ++round) {
    Paths paths;
    for (size_t n = random() % 8; n > 0; --n) {
      std::string path;
      for (size_t k = random() % 7 + 1; k > 0; --k) path += pieces[random() % pieces.size()];
      paths.push_back(path + (random() % 4 ? ".gguf" : ""));
    }
    std::sort(paths.begin(), paths.end());
    paths.erase(std::unique(paths.begin(), paths.end()), paths.end());
    size_t n_files = 0;
    for (const HubGguf& model : gguf_models(paths)) {
      n_files += model.files.size();
      ASSERT_FALSE(model.files.empty());
      for (const std::string& file : model.files) ASSERT_TRUE(std::binary_search(paths.begin(), paths.end(), file));
      if (model.files.size() != model.n_parts) continue;
      const HubChoice choice = choose_files("o/r", paths, "", model.files[0]);
      Paths expected = model.files;
      if (const std::string projector = projector_of(paths); !projector.empty()) expected.push_back(projector);
      ASSERT_EQ(choice.files, expected);
    }
    ASSERT_LE(n_files, paths.size());
  }
}

}  // namespace
}  // namespace ingot
