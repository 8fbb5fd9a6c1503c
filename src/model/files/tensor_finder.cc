#include "model/files/tensor_finder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "base/file.h"
#include "model/files/load_quantizer.h"
#include "quant/encode.h"

namespace ingot {

bool TensorFinder::find(const MatrixRow& row, int layer, HostTensor& out) {
  const Slice& slice = is_gguf() ? row.gguf_slice : row.hf_slice;
  const LayerSizes sizes(config_, layer);
  Wanted wanted = wanted_of(row, layer, slice, sizes);
  wanted.n_out = size_of(row.n_out, sizes);
  wanted.n_in = size_of(row.n_in, sizes);
  if (slice.groups != nullptr) {
    const int64_t n_groups = size_of(slice.groups, sizes);
    wanted.n_matrices *= n_groups;
    wanted.n_out /= n_groups;
    wanted.total /= n_groups;
  }
  if (!find_matrix(wanted, out)) return false;
  quantize(name_at(names_of(row.gguf_name).front(), layer, 0), out);
  return take_part(part_of(row, LayerSizes(rank_config_, layer)), out);
}

bool TensorFinder::find(const VectorRow& row, int layer, HostTensor& out) {
  const LayerSizes sizes(config_, layer);
  Wanted wanted = wanted_of(row, layer, is_gguf() ? row.gguf_slice : row.hf_slice, sizes);
  wanted.n_out = 1;
  wanted.n_in = size_of(row.n, sizes);
  if (!is_gguf()) wanted.is_log = row.hf_kept == VectorRow::kLog;
  if (!is_gguf()) wanted.add_one = row.hf_kept == VectorRow::kLessOne && norm_weight_plus_one();
  return find_vector(wanted, out) && take_part(part_of(row, LayerSizes(rank_config_, layer)), out);
}

std::vector<std::string> TensorFinder::names_of(const char* names) {
  std::vector<std::string> all;
  for (std::string_view rest = names; !rest.empty();) {
    const size_t end = std::min(rest.find('|'), rest.size());
    all.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (all.empty()) all.emplace_back();
  return all;
}

std::string TensorFinder::name_at(const std::string& pattern, int layer, int expert, int number) {
  return fmt::format(fmt::runtime(pattern), layer, expert, number);
}

void TensorFinder::release(const HostTensor& found) {
  const size_t n_copies = copies_.size();
  copies_.remove_if([&](const auto& copy) { return copy.data() == found.data; });
  if (copies_.size() != n_copies) return;
  HostTensor whole = found;
  if (found.whole != nullptr) {
    whole.data = found.whole;
    give_back_mapped(found.bytes());
  }
  source_.release(whole);
}

HostTensor TensorFinder::own(HostTensor shape, std::vector<uint8_t> bytes) {
  copies_.push_back(std::move(bytes));
  shape.data = copies_.back().data();
  shape.whole = nullptr;
  return shape;
}

bool TensorFinder::ask(const std::string& name, int64_t n_out, int64_t n_in, HostTensor& out) {
  return shapes_only_ ? source_.find_shape(name, n_out, n_in, out) : source_.find(name, n_out, n_in, out);
}

bool TensorFinder::find_stored(const std::string& name, int64_t n_out, int64_t n_in, HostTensor& out) {
  if (name.empty() || !ask(name, n_out, n_in, out)) return false;
  check_shape(name, n_out, n_in, out);
  return true;
}

void TensorFinder::check_shape(const std::string& name, int64_t n_out, int64_t n_in, const HostTensor& found) const {
  if (found.n_out != n_out || found.n_in != n_in)
    throw Error("{}: tensor '{}' is [{}, {}]: expected [{}, {}]", source_.name(), source_.stored_name(name),
                found.n_out, found.n_in, n_out, n_in);
}

bool TensorFinder::find_matrix(const Wanted& w, HostTensor& out) {
  if (w.transposed) {
    Wanted stored = w;
    std::swap(stored.n_out, stored.n_in);
    stored.transposed = false;
    if (!find_matrix(stored, out)) return false;
    decode_blocks(out);
    return transpose(stored, out), true;
  }
  const int64_t rows = w.n_matrices * (w.total > 0 ? w.total : w.n_out);
  for (const std::string& pattern : names_of(w.names)) {
    if (pattern.find("{1}") != pattern.npos) {
      if (find_each(pattern, w, out)) return true;
    } else if (pattern.starts_with('~')) {
      const std::string name = name_at(pattern.substr(1), w.layer, 0, w.number);
      if (!find_stored(name, w.n_matrices * w.n_in, rows / w.n_matrices, out)) continue;
      return transpose(w, out), take_rows(w, out), true;
    } else if (find_stored(name_at(pattern, w.layer, 0, w.number), rows, w.n_in, out)) {
      return take_rows(w, out), true;
    }
  }
  if (w.optional) return false;
  throw Error("{}: tensor '{}' is missing", source_.name(),
              source_.stored_name(name_at(names_of(w.names).front(), w.layer, 0, w.number)));
}

// Joins experts that are separate tensors. All must have the same format.
bool TensorFinder::find_each(const std::string& pattern, const Wanted& w, HostTensor& out) {
  std::vector<uint8_t> bytes;
  HostTensor part;
  for (int64_t e = 0; e < w.n_matrices; ++e) {
    const std::string name = name_at(pattern, w.layer, static_cast<int>(e));
    if (!find_stored(name, w.n_out, w.n_in, part)) {
      if (e == 0) return false;
      throw Error("{}: tensor '{}' is missing", source_.name(), source_.stored_name(name));
    }
    const auto n_bytes = static_cast<size_t>(part.n_out) * row_bytes(part.format, part.n_in);
    if (e == 0) {
      out = part;
      out.n_out = w.n_matrices * w.n_out;
      out.file_bytes = 0;
      if (!shapes_only_) bytes.reserve(static_cast<size_t>(w.n_matrices) * n_bytes);
    } else if (part.format != out.format) {
      throw Error(
          "{}: tensor '{}' is stored as {}, but the experts before it as {}: all experts of a layer need the same type",
          source_.name(), name, info(part.format).name, info(out.format).name);
    }
    if (shapes_only_) continue;
    bytes.insert(bytes.end(), part.data, part.data + n_bytes);
    out.file_bytes += part.file_bytes;
    source_.release(part);
  }
  if (!shapes_only_) out = own(out, std::move(bytes));
  return true;
}

// Selects the wanted rows of each matrix, without a copy if they are contiguous in the source.
void TensorFinder::take_rows(const Wanted& w, HostTensor& host) {
  if (w.total == 0) return;
  const size_t n_bytes = row_bytes(host.format, host.n_in);
  HostTensor part = host;
  part.n_out = w.n_matrices * w.n_out;
  part.file_bytes = host.file_bytes * static_cast<size_t>(w.n_out) / static_cast<size_t>(w.total);
  if (shapes_only_) {
    host = part;
    return;
  }
  if (w.n_matrices == 1 && w.step == 1 && !is_own(host)) {
    part.whole = host.data;
    part.data = host.data + static_cast<size_t>(w.first) * n_bytes;
    host = part;
    return;
  }
  std::vector<uint8_t> bytes(static_cast<size_t>(part.n_out) * n_bytes);
  for (int64_t m = 0; m < w.n_matrices; ++m)
    for (int64_t i = 0; i < w.n_out; ++i)
      std::memcpy(bytes.data() + static_cast<size_t>(m * w.n_out + i) * n_bytes,
                  host.data + static_cast<size_t>(m * w.total + w.first + i * w.step) * n_bytes, n_bytes);
  release(host);
  host = own(part, std::move(bytes));
}

// Decodes to F16, for formats whose blocks cannot be transposed.
void TensorFinder::decode_blocks(HostTensor& host) {
  if (info(host.format).block_size == 1) return;
  if (shapes_only_) {
    host.format = Format::F16;
    return;
  }
  std::vector<float> row(static_cast<size_t>(host.n_in));
  std::vector<uint8_t> bytes(static_cast<size_t>(host.n_out) * row_bytes(Format::F16, host.n_in));
  for (int64_t i = 0; i < host.n_out; ++i) {
    decode_row(host.format, host.data + i * row_bytes(host.format, host.n_in), row.data(), host.n_in);
    encode_row(Format::F16, row.data(), bytes.data() + i * row_bytes(Format::F16, host.n_in), host.n_in);
  }
  HostTensor decoded = host;
  decoded.format = Format::F16;
  release(host);
  host = own(decoded, std::move(bytes));
}

// Encodes the matrix, if the source has a quantizer for it.
void TensorFinder::quantize(const std::string& gguf_name, HostTensor& host) {
  const LoadQuantizer* quantizer = source_.quantizer();
  if (quantizer == nullptr) return;
  const Format format = quantizer->format_of(gguf_name, host.format, host.n_in);
  if (format == host.format) return;
  HostTensor encoded = host;
  encoded.format = format;
  encoded.type.clear();
  if (encoded.file_bytes == 0) encoded.file_bytes = static_cast<size_t>(host.n_out) * row_bytes(host.format, host.n_in);
  if (shapes_only_) {
    host = encoded;
    return;
  }
  std::vector<uint8_t> bytes = quantizer->encode(host, format, gguf_name);
  release(host);
  host = own(encoded, std::move(bytes));
}

// Transposes each of the matrices from [rows, columns] to [columns, rows].
void TensorFinder::transpose(const Wanted& w, HostTensor& host) {
  const int64_t rows = host.n_out / w.n_matrices, columns = host.n_in;
  if (info(host.format).block_size != 1)
    throw Error("{}: '{}' is stored transposed and as {}: expected F32, F16 or BF16", source_.name(), w.names,
                info(host.format).name);
  HostTensor transposed = host;
  transposed.n_out = w.n_matrices * columns;
  transposed.n_in = rows;
  if (shapes_only_) {
    host = transposed;
    return;
  }
  const auto size = static_cast<int64_t>(info(host.format).block_bytes);
  std::vector<uint8_t> bytes(static_cast<size_t>(host.n_out * columns * size));
  for (int64_t m = 0; m < w.n_matrices; ++m)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        std::memcpy(bytes.data() + ((m * columns + j) * rows + i) * size,
                    host.data + ((m * rows + i) * columns + j) * size, static_cast<size_t>(size));
  release(host);
  host = own(transposed, std::move(bytes));
}

// Some checkpoints store whole norms, though the other files of the architecture store them less 1.
bool TensorFinder::norm_weight_plus_one() {
  if (plus_one_) return *plus_one_;
  plus_one_ = config_.arch->norm_weight_plus_one && !shapes_only_;
  for (int layer = 0; layer < config_.n_layers && *plus_one_; ++layer)
    for (const PartKind* kind : parts_of(config_, layer))
      if (kind->has_whole_norms != nullptr) return *(plus_one_ = !kind->has_whole_norms(source_, config_, layer));
  return *plus_one_;
}

bool TensorFinder::find_vector(const Wanted& w, HostTensor& out) {
  const int64_t stored = w.total > 0 ? w.total : w.n_in;
  for (const std::string& pattern : names_of(w.names)) {
    if (pattern.find('&') != pattern.npos) {
      if (join_vectors(pattern, w, out)) return true;
      continue;
    }
    const std::string name = name_at(pattern, w.layer, 0, w.number);
    if (name.empty() || !ask(name, w.n_matrices, stored, out)) continue;
    if ((out.n_in == 1 || out.n_out == 1 || w.n_matrices == 1) && out.n_in * out.n_out == w.n_matrices * stored)
      out.n_out = w.n_matrices, out.n_in = stored;  // [n, stored, 1], all in one row, or one vector as rows
    check_shape(name, w.n_matrices, stored, out);
    if (info(out.format).block_size != 1)
      throw Error("{}: tensor '{}' is stored as {}: expected F32, F16 or BF16", source_.name(), name,
                  info(out.format).name);
    if (shapes_only_) {
      out.n_in = w.n_in;
      return true;
    }
    if (w.total == 0 && !w.add_one && !w.is_log) return true;
    std::vector<float> all(static_cast<size_t>(stored)), values;
    for (int64_t m = 0; m < w.n_matrices; ++m) {
      decode_row(out.format, out.data + m * row_bytes(out.format, stored), all.data(), stored);
      for (int64_t i = 0; i < w.n_in; ++i) {
        const float kept = all[w.first + i * w.step];
        values.push_back(w.is_log ? -static_cast<float>(std::exp(double{kept})) : w.add_one ? kept + 1.0f : kept);
      }
    }
    HostTensor part{.format = Format::F32, .n_out = w.n_matrices, .n_in = w.n_in};
    part.file_bytes = static_cast<size_t>(part.n_out) * row_bytes(out.format, w.n_in);
    source_.release(out);
    std::vector<uint8_t> bytes(values.size() * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    out = own(part, std::move(bytes));
    return true;
  }
  if (w.optional) return false;
  throw Error("{}: tensor '{}' is missing", source_.name(),
              source_.stored_name(name_at(names_of(w.names).front(), w.layer, 0, w.number)));
}

// Joins vectors that are separate tensors, with names separated by '&'. False if there is no tensor of the first name.
bool TensorFinder::join_vectors(const std::string& names, const Wanted& w, HostTensor& out) {
  std::vector<float> values;
  HostTensor joined{.format = Format::F32, .n_out = w.n_matrices, .n_in = w.n_in}, part;
  for (size_t begin = 0; begin < names.size();) {
    const size_t end = std::min(names.find('&', begin), names.size());
    const std::string name = names.substr(begin, end - begin);
    Wanted one = w;
    one.names = name.c_str(), one.n_matrices = 1, one.optional = begin == 0;
    if (!find_vector(one, part)) return false;
    begin = end + 1;
    joined.file_bytes += part.file_bytes > 0 ? part.file_bytes : row_bytes(part.format, w.n_in);
    if (shapes_only_) continue;
    values.resize(values.size() + static_cast<size_t>(w.n_in));
    decode_row(part.format, part.data, values.data() + values.size() - w.n_in, w.n_in);
    release(part);
  }
  std::vector<uint8_t> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  out = shapes_only_ ? joined : own(joined, std::move(bytes));
  return true;
}

int64_t largest_block(WeightSource& source, const Config& model, bool whole_experts) {
  TensorFinder finder(source, model, true);
  int64_t largest = 1;
  HostTensor host;
  for (int layer = 0; layer < model.n_layers; ++layer)
    for (const PartKind* kind : parts_of(model, layer))
      for (const MatrixRow& row : kind->rows().matrices)
        if (row.shard == Shard::kRows && !(whole_experts && row.count.used != nullptr) && applies(row, model, layer) &&
            finder.find(row, layer, host))
          largest = std::lcm(largest, int64_t{info(host.format).block_size});
  return largest;
}

}  // namespace ingot
