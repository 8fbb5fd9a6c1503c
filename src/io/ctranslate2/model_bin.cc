#include "io/ctranslate2/model_bin.h"

#include <cstring>

#include "io/reader.h"
#include "io/sniff.h"

namespace ingot {
namespace {

constexpr uint32_t kOldestVersion = 5, kNewestVersion = 6;
constexpr size_t kMaxDims = 8;
constexpr size_t kElementBytes[] = {4, 1, 2, 4, 2, 2};  // by Ct2Type

// Names have a length of two bytes, which counts a zero at the end.
std::string read_name(Reader& reader, const char* field) {
  const auto text = as_text(reader.take(reader.read<uint16_t>(field), field));
  return std::string(text.substr(0, text.find('\0')));
}

}  // namespace

int64_t Ct2Variable::n_elements() const {
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  return n;
}

int64_t Ct2Variable::integer() const {
  if (n_elements() != 1) return -1;
  int8_t i8;
  int16_t i16;
  int32_t i32;
  switch (type) {
    case Ct2Type::kI8: std::memcpy(&i8, data.data(), sizeof i8); return i8;
    case Ct2Type::kI16: std::memcpy(&i16, data.data(), sizeof i16); return i16;
    case Ct2Type::kI32: std::memcpy(&i32, data.data(), sizeof i32); return i32;
    default: return -1;
  }
}

Ct2Model Ct2Model::open(const std::string& path) {
  Ct2Model model(path);
  auto mapping = std::make_shared<const MappedFile>(path);
  model.read(mapping->bytes());
  model.mapping_ = std::move(mapping);
  return model;
}

Ct2Model Ct2Model::parse(std::span<const uint8_t> bytes, const std::string& name) {
  Ct2Model model(name);
  model.read(bytes);
  return model;
}

const Ct2Variable* Ct2Model::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &variables_[found->second];
}

void Ct2Model::read(std::span<const uint8_t> bytes) {
  const std::string file = printable(name_);
  Reader reader(bytes, file);
  const auto version = reader.read<uint32_t>("version");
  if (version < kOldestVersion || version > kNewestVersion)
    throw Error("{}: not a CTranslate2 model of version {} or {}: it is {}", file, kOldestVersion, kNewestVersion,
                describe_file(bytes.first(std::min<size_t>(bytes.size(), 512)), bytes.size()));
  spec_ = read_name(reader, "name of the specification");
  reader.read<uint32_t>("revision");
  const auto n_variables = reader.read<uint32_t>("number of variables");
  for (uint32_t i = 0; i < n_variables; ++i) {
    Ct2Variable v;
    v.name = read_name(reader, "name of a variable");
    const Reader::Scope scope(reader, "variable", v.name);
    const auto n_dims = reader.read<uint8_t>("number of dimensions");
    if (n_dims > kMaxDims) reader.fail("number of dimensions", "{}; the limit is {}", n_dims, kMaxDims);
    uint64_t n_elements = 1;
    for (uint8_t d = 0; d < n_dims; ++d) {
      const auto size = reader.read<uint32_t>("size of a dimension");
      if (size == 0 || n_elements > bytes.size() / size)
        reader.fail("size of a dimension", "{}: more elements than the file has bytes, or none", size);
      n_elements *= size;
      v.shape.push_back(size);
    }
    const auto type = reader.read<uint8_t>("type");
    if (type >= std::size(kElementBytes)) reader.fail("type", "{} is not known", type);
    v.type = static_cast<Ct2Type>(type);
    const auto n_bytes = reader.read<uint32_t>("number of bytes");
    if (n_bytes != n_elements * kElementBytes[type])
      reader.fail("number of bytes", "{}: expected {} for {} elements", n_bytes, n_elements * kElementBytes[type],
                  n_elements);
    v.data = reader.take(n_bytes, "data");
    if (!index_.emplace(v.name, variables_.size()).second) reader.fail("name", "occurs twice");
    variables_.push_back(std::move(v));
  }
  if (reader.remaining() == 0) return;
  const auto n_aliases = reader.read<uint32_t>("number of aliases");
  for (uint32_t i = 0; i < n_aliases; ++i) {
    const std::string alias = read_name(reader, "alias"), of = read_name(reader, "name that an alias stands for");
    const auto found = index_.find(of);
    if (found == index_.end())
      reader.fail("alias", "'{}' stands for '{}', which does not exist", printable(alias), printable(of));
    index_.emplace(alias, found->second);
  }
}

}  // namespace ingot
