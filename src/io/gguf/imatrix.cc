#include "io/gguf/imatrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "io/gguf/gguf.h"
#include "io/sniff.h"

namespace ingot {
namespace {

constexpr int32_t kMaxEntries = 65536, kMaxValues = 1 << 26, kMaxNameBytes = 4096;
constexpr std::string_view kSums = ".in_sum2", kCounts = ".counts";

std::vector<float> floats_of(const Gguf& file, const TensorInfo& tensor) {
  if (tensor.format != Format::F32)
    throw Error("{}: tensor '{}' is {}: an importance matrix needs F32", printable(file.path()), printable(tensor.name),
                ggml_type_name(tensor.ggml_type));
  std::vector<float> values(static_cast<size_t>(tensor.n_elements()));
  std::memcpy(values.data(), file.data(tensor).data(), values.size() * sizeof(float));
  return values;
}

// Divides the sums by each matrix's token count. A matrix (an expert) that processed no token gets equal means.
std::vector<float> means_of(const Gguf& file, const TensorInfo& sums, const TensorInfo& counts) {
  std::vector<float> means = floats_of(file, sums);
  const std::vector<float> seen = floats_of(file, counts);
  if (means.size() % seen.size() != 0)
    throw Error("{}: tensor '{}' has {} values for {} counts", printable(file.path()), printable(sums.name),
                means.size(), seen.size());
  const size_t n_in = means.size() / seen.size();
  for (size_t i = 0; i < means.size(); ++i) {
    const float count = seen[i / n_in];
    means[i] = count > 0 ? means[i] / count : 1.0f;
  }
  return means;
}

int32_t read_count(Reader& reader, const char* field, int32_t max_count) {
  const auto count = reader.read<int32_t>(field);
  if (count < 1 || count > max_count) reader.fail(field, "{} is not 1 to {}", count, max_count);
  return count;
}

}  // namespace

ImportanceMatrix ImportanceMatrix::read(const std::string& path) {
  ImportanceMatrix matrix;
  matrix.path_ = path;
  const MappedFile file(path);
  const auto head = file.bytes().first(std::min<size_t>(file.bytes().size(), 64));
  if (as_text(head).starts_with("GGUF")) {
    matrix.read_gguf();
  } else {
    matrix.read_legacy(file.bytes());
  }
  return matrix;
}

void ImportanceMatrix::read_gguf() {
  const Gguf file = Gguf::open(path_);
  for (const TensorInfo& tensor : file.tensors()) {
    if (!tensor.name.ends_with(kSums)) continue;
    const std::string name(tensor.name.substr(0, tensor.name.size() - kSums.size()));
    const TensorInfo* counts = file.find(name + std::string(kCounts));
    if (counts == nullptr) throw Error("{}: tensor '{}{}' is missing", printable(path_), printable(name), kCounts);
    add(name, means_of(file, tensor, *counts));
  }
  if (entries_.empty())
    throw Error("{}: is not an importance matrix: no tensor's name ends in {} (is it a model?)", printable(path_),
                kSums);
  n_chunks_ = file.metadata().find_u32("imatrix.chunk_count").value_or(0);
  if (const Value* datasets = file.metadata().find("imatrix.datasets"); datasets != nullptr && datasets->is_array())
    for (const std::string_view name : file.metadata().get_strings("imatrix.datasets"))
      if (dataset_.empty()) dataset_ = name;
}

// i32 count; then for each entry: i32 length and name, i32 calls, i32 number of values, f32 sums over the calls. Newer
// files end with i32 chunks, i32 length and name of the text.
void ImportanceMatrix::read_legacy(std::span<const uint8_t> bytes) {
  Reader reader(bytes, path_);
  const auto n_entries = bytes.size() < 4 ? 0 : reader.read<int32_t>("entry count");
  if (n_entries < 1 || n_entries > kMaxEntries)
    throw Error("{}: is not an importance matrix but {}", printable(path_),
                describe_file(bytes.first(std::min<size_t>(bytes.size(), 64)), bytes.size()));
  for (int32_t i = 0; i < n_entries; ++i) {
    const int32_t n_name = read_count(reader, "name length", kMaxNameBytes);
    const std::string name(as_text(reader.take(static_cast<uint64_t>(n_name), "name")));
    Reader::Scope scope(reader, "entry", name);
    const auto n_calls = static_cast<float>(std::max(reader.read<int32_t>("call count"), 1));
    const int32_t n_values = read_count(reader, "value count", kMaxValues);
    const auto data = reader.take(sizeof(float) * static_cast<uint64_t>(n_values), "values");
    std::vector<float> means(static_cast<size_t>(n_values));
    std::memcpy(means.data(), data.data(), data.size());
    for (float& mean : means) mean /= n_calls;
    add(name, std::move(means));
  }
  if (reader.remaining() == 0) return;
  n_chunks_ = static_cast<uint32_t>(std::max(reader.read<int32_t>("chunk count"), 0));
  if (reader.remaining() == 0) return;
  const auto n_name = reader.read<int32_t>("length of the dataset's name");
  if (n_name > 0) dataset_ = as_text(reader.take(static_cast<uint64_t>(n_name), "dataset's name"));
}

void ImportanceMatrix::add(const std::string& name, std::vector<float> means) {
  for (const float mean : means)
    if (!std::isfinite(mean) || mean < 0)
      throw Error("{}: entry '{}' has the value {}: expected 0 or more", printable(path_), printable(name), mean);
  constexpr double kUnseen = 1e-5;  // of the mean; a weight of 0 would leave the codes undetermined
  const double mean = std::accumulate(means.begin(), means.end(), 0.0) / static_cast<double>(means.size());
  const auto least = static_cast<float>(mean > 0 ? mean * kUnseen : 1.0);
  for (float& value : means) value = std::max(value, least);
  if (!entries_.emplace(name, std::move(means)).second)
    throw Error("{}: entry '{}' occurs twice", printable(path_), printable(name));
}

std::span<const float> ImportanceMatrix::find(std::string_view tensor) const {
  const auto it = entries_.find(tensor);
  return it == entries_.end() ? std::span<const float>() : std::span<const float>(it->second);
}

std::vector<std::string> ImportanceMatrix::names() const {
  std::vector<std::string> names;
  for (const auto& [name, means] : entries_) names.push_back(name);
  return names;
}

}  // namespace ingot
