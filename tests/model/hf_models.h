// The Hugging Face directories of tests/data/hf, which hold the same weights as the GGUF files with the same names.
#pragma once
#include "golden_models.h"
#include "model/files/checkpoint.h"

namespace ingot {

inline const fs::path kHfModels = fs::path(INGOT_TEST_DATA) / "hf";

inline const std::vector<std::string>& hf_names() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(kHfModels)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }();
  return all;
}

inline Ranks load_hf(const fs::path& directory) {
  const auto checkpoint = hf_checkpoint(directory.string());
  const RunnerOptions options{.backend = {.device = "ref"},
                              .n_ctx = n_ctx_of(directory.filename()),
                              .max_batch_tokens = 512,
                              .max_logits = 512,
                              .kv_dtype = DType::kF32};
  return Ranks(checkpoint->config(), checkpoint->weights(), options, nullptr);
}

// A copy that a test may change; removed when the test ends.
class HfCopy {
 public:
  explicit HfCopy(const std::string& name, const fs::path& from = kHfModels) {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    std::string folder = fmt::format("hf_{}_{}_{}", test->test_suite_name(), test->name(), name);
    std::ranges::replace(folder, '/', '_');  // of tests with parameters
    path_ = fs::path(testing::TempDir()) / folder;
    fs::remove_all(path_);
    fs::copy(from / name, path_);
  }
  ~HfCopy() { fs::remove_all(path_); }
  HfCopy(const HfCopy&) = delete;
  HfCopy& operator=(const HfCopy&) = delete;

  const fs::path& path() const { return path_; }
  void write(const std::string& file, const std::string& text) const {
    std::ofstream(path_ / file, std::ios::binary) << text;
  }
  std::string read(const std::string& file) const { return read_file((path_ / file).string()); }
  // Changes a JSON file through a nlohmann value.
  template <class F>
  void edit(const std::string& file, const F& change) const {
    auto json = nlohmann::ordered_json::parse(read(file));
    change(json);
    write(file, json.dump());
  }

 private:
  fs::path path_;
};

}  // namespace ingot
