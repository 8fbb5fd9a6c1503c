#include "io/huggingface/safetensors.h"

#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "base/check.h"
#include "io/json.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOneFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr size_t kMaxIndexBytes = 256'000'000;

// The blobs folder of the Hugging Face cache if the directory is snapshots/REVISION or a folder in it
// (sentence-transformers' 0_Transformer); otherwise the directory itself.
fs::path blobs_of(const fs::path& home) {
  for (const fs::path& revision : {home, home.parent_path()})
    if (revision.parent_path().filename() == "snapshots") return revision.parent_path().parent_path() / "blobs";
  return home;
}

// Shards must be in the folder of their index: plain names, and no links to other folders except to the blobs of the
// Hugging Face cache (snapshots/REVISION/NAME -> ../../blobs/HASH).
std::string shard_path(const std::string& directory, const Json& value) {
  const std::string_view name = value.string();
  const bool plain = name.find_first_of(std::string_view("/\\:\0", 4)) == name.npos && name.ends_with(".safetensors") &&
                     name.size() <= 255 && !name.starts_with(".");
  if (!plain)
    throw value.error("'{}' is not the plain name of a .safetensors file in this directory", printable(name, 128));
  const fs::path path = fs::path(directory) / name;
  std::error_code error;
  const fs::path real = fs::canonical(path, error), home = fs::canonical(directory);
  if (error) throw value.error("the shard '{}' is missing: download it", printable(name, 128));
  if (real.parent_path() != home && real.parent_path() != blobs_of(home))
    throw value.error("the shard '{}' is a link that leads out of its directory: put the file itself there",
                      printable(name, 128));
  return path.string();
}

// The content of an index: which shard holds which tensor.
struct ShardMap {
  std::map<std::string_view, Json> first;  // for each shard, an entry that names it
  std::vector<std::pair<std::string_view, Json>> tensors;
};

ShardMap read_shard_map(const JsonDocument& document) {
  ShardMap map;
  const Json weights = document.root().at("weight_map");
  map.tensors = weights.members();
  if (map.tensors.empty()) throw weights.error("names no tensor");
  if (map.tensors.size() > kSafeMaxTensors)
    throw weights.error("{} entries; the limit is {}", map.tensors.size(), kSafeMaxTensors);
  for (const auto& [tensor, shard] : map.tensors) map.first.emplace(shard.string(), shard);
  return map;
}

}  // namespace

Safetensors Safetensors::open_file(const std::string& path) {
  Safetensors model;
  model.add_mapped(MappedFile(path));
  model.index_tensors();
  return model;
}

Safetensors Safetensors::parse(std::span<const uint8_t> bytes, const std::string& name) {
  Safetensors model;
  model.add_file(bytes, name);
  model.index_tensors();
  return model;
}

Safetensors Safetensors::open_directory(const std::string& path) {
  const std::string one = (fs::path(path) / kOneFile).string(), index = (fs::path(path) / kIndexFile).string();
  std::error_code error;
  if (fs::exists(one, error)) return open_file(one);
  if (!fs::exists(index, error))
    throw Error("'{}' has neither {} nor {}: download the model's safetensors files, or give a GGUF file",
                printable(path), kOneFile, kIndexFile);
  Safetensors model;
  model.open_index(path, index);
  return model;
}

void Safetensors::open_index(const std::string& directory, const std::string& index) {
  const JsonDocument document = JsonDocument::read(index, kMaxIndexBytes);
  const ShardMap map = read_shard_map(document);
  std::map<std::string_view, int> numbers;
  for (const auto& [shard, entry] : map.first) {
    numbers[shard] = static_cast<int>(files_.size());
    add_mapped(MappedFile(shard_path(directory, entry)));
  }
  index_tensors();
  for (const auto& [name, shard] : map.tensors) {
    const SafeTensor* tensor = find(name);
    const int number = numbers[shard.string()];
    if (tensor == nullptr || tensor->shard != number)
      throw shard.error("tensor '{}' is not in {}{}", printable(name, 128),
                        printable(names_[static_cast<size_t>(number)]),
                        tensor == nullptr ? "" : ", but in " + printable(names_[static_cast<size_t>(tensor->shard)]));
  }
  if (map.tensors.size() != tensors_.size())
    warnings_.push_back(fmt::format("{}: the shards hold {} tensors, of which {} are listed", printable(index),
                                    tensors_.size(), map.tensors.size()));
  uint64_t total = 0;
  for (const SafeTensor& tensor : tensors_) total += tensor.n_bytes;
  const auto metadata = document.root().find("metadata");
  const auto said = metadata && metadata->is_object() ? metadata->find("total_size") : std::nullopt;
  if (said &&
      (said->kind() != Json::Kind::kInteger || said->integer(INT64_MIN, INT64_MAX) != static_cast<int64_t>(total)))
    warnings_.push_back(said->error("{}, but the tensors take {} bytes", said->describe(), total).what());
}

void Safetensors::add_mapped(MappedFile mapping) {
  add_file(mapping.bytes(), mapping.path());
  mappings_.push_back(std::move(mapping));
}

void Safetensors::add_file(std::span<const uint8_t> bytes, const std::string& name) {
  SafetensorsFile file = parse_safetensors_file(bytes, name);
  for (SafeTensor& tensor : file.tensors) {
    tensor.shard = static_cast<int>(files_.size());
    tensors_.push_back(std::move(tensor));
  }
  std::move(file.metadata.begin(), file.metadata.end(), std::back_inserter(metadata_));
  files_.push_back(bytes);
  names_.push_back(name);
}

// Names within one file are already known to be distinct, so a duplicate name occurs in two shards.
void Safetensors::index_tensors() {
  auto name_of = [&](size_t i) -> std::string_view { return tensors_[i].name; };
  index_ = NameIndex(tensors_.size(), name_of);
  if (const auto twice = index_.duplicate(name_of))
    throw Error("{}: tensor '{}' is already in an earlier shard of the model",
                printable(names_[static_cast<size_t>(tensors_[*twice].shard)]), printable(tensors_[*twice].name, 128));
}

const SafeTensor* Safetensors::find(std::string_view name) const {
  const auto i = index_.find(name, [&](size_t tensor) -> std::string_view { return tensors_[tensor].name; });
  return i ? &tensors_[*i] : nullptr;
}

std::span<const uint8_t> Safetensors::data(const SafeTensor& tensor) const {
  CHECK_LT(static_cast<size_t>(tensor.shard), files_.size());
  return files_[static_cast<size_t>(tensor.shard)].subspan(tensor.offset, tensor.n_bytes);
}

uint64_t Safetensors::file_bytes() const {
  uint64_t total = 0;
  for (const auto& file : files_) total += file.size();
  return total;
}

}  // namespace ingot
