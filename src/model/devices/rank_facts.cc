#include "model/devices/rank_facts.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/error.h"
#include "io/digest.h"
#include "io/gguf/gguf.h"
#include "io/huggingface/directory.h"
#include "model/devices/ranks.h"

namespace ingot {
namespace {

constexpr size_t kSample = 256;  // bytes of each tensor, or of each place in a file
constexpr size_t kPlaces = 256;  // in each file of a directory

void add(Digest& digest, const std::string& text) {
  digest.update({reinterpret_cast<const uint8_t*>(text.data()), text.size() + 1});
}

void add_file(Digest& digest, const std::filesystem::path& path) {
  const uint64_t size = std::filesystem::file_size(path);
  std::ifstream file(path, std::ios::binary);
  std::vector<char> sample(kSample);
  add(digest, fmt::format("{} {}", path.filename().string(), size));
  for (size_t i = 0; i < kPlaces; ++i) {
    file.clear();
    file.seekg(static_cast<std::streamoff>(size / kPlaces * i));
    file.read(sample.data(), kSample);
    digest.update({reinterpret_cast<const uint8_t*>(sample.data()), static_cast<size_t>(file.gcount())});
  }
}

// Texts of fixed length, as exchange() needs.
struct Wire {
  char version[64] = {}, model[72] = {}, options[512] = {}, place[128] = {};
};

template <size_t N>
void write(char (&to)[N], const std::string& from) {
  std::memcpy(to, from.data(), std::min(from.size(), N - 1));
}

std::string difference(const Wire& first, const Wire& other) {
  if (std::string_view(first.version) != other.version)
    return fmt::format("is ingot {}, and rank 0 is ingot {}: install the same version on all hosts",
                       printable(other.version), printable(first.version));
  if (std::string_view(first.model) != other.model)
    return "has another model file than rank 0: copy the same one to all hosts";
  if (std::string_view(first.options) != other.options)
    return fmt::format("has other options than rank 0 ({}, not {}): start all ranks with the same command line",
                       printable(other.options), printable(first.options));
  return "";
}

}  // namespace

std::string fingerprint_of(const Checkpoint& checkpoint) {
  Digest digest = Digest::sha256();
  if (const Gguf* file = checkpoint.gguf()) {
    for (const TensorInfo& tensor : file->tensors()) {
      add(digest, fmt::format("{} {} {}", tensor.name, tensor.ggml_type, tensor.n_bytes));
      const auto bytes = file->data(tensor);
      digest.update(bytes.first(std::min(kSample, bytes.size())));
      digest.update(bytes.subspan(bytes.size() / 2, std::min(kSample, bytes.size() - bytes.size() / 2)));
    }
    return digest.finish();
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint.path()))
    if (entry.is_regular_file() &&
        (entry.path().extension() == ".safetensors" || entry.path().filename() == "config.json"))
      files.push_back(entry.path());
  std::ranges::sort(files);
  for (const auto& path : files) add_file(digest, path);
  return digest.finish();
}

std::string options_text(const RunnerOptions& o) {
  return fmt::format(
      "device {}, context {}, chunk {}, sequences {}, logits {}, block {}, KV {} of {}, memory {} {}, snapshots "
      "{}, activations '{}'{}{}{}",
      o.backend.device.substr(0, o.backend.device.find(':')), o.n_ctx, o.max_batch_tokens, o.max_seqs, o.logit_rows(),
      o.block_size, o.n_kv_tokens, kv_type_name(o.kv_dtype), o.memory_share, o.memory_bytes, o.n_snapshots,
      o.backend.activations, o.backend.deterministic ? ", deterministic" : "",
      o.parallel.whole_experts ? ", whole experts" : "",
      o.parallel.n_stages > 1 ? fmt::format(", {} stages", o.parallel.n_stages) : "");
}

void check_alike(Communicator& ranks, const RankFacts& own) {
  Wire wire;
  write(wire.version, own.version), write(wire.model, own.model), write(wire.options, own.options);
  write(wire.place, own.place);
  std::vector<Wire> all(static_cast<size_t>(ranks.size()));
  ranks.exchange(all.data(), &wire, sizeof(wire));
  for (int r = 1; r < ranks.size(); ++r) {
    const Wire& other = all[static_cast<size_t>(r)];
    const std::string what = difference(all[0], other);
    if (what.empty()) continue;
    if (ranks.rank() > 0) ranks.receive();  // rank 0 reports the error and ends all ranks
    throw Error("{} ({}) {}", rank_name(r, ranks.size()), printable(other.place), what);
  }
}

}  // namespace ingot
