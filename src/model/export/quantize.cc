#include "model/export/quantize.h"

#include <atomic>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/threads.h"
#include "quant/encode.h"

namespace ingot {
namespace {

constexpr uint32_t kQuantizationVersion = 2;  // of ggml's block formats
constexpr float kLargestF16 = 65504;
constexpr std::string_view kEmbedding = "token_embd.weight";
constexpr int64_t kElementsPerTask = 1 << 15, kTasksPerThread = 8;

uint32_t ggml_type_of(Format format) {
  const std::optional<uint32_t> type = info(format).ggml_type;
  CHECK(type.has_value());
  return *type;
}

bool is_dense(Format format) { return info(format).block_size == 1; }
bool is_wide(Format format) { return format == Format::F32 || format == Format::BF16; }

struct Plan {
  const ExportTensor* tensor;
  std::optional<Format> target;  // nothing: the bytes are copied
  std::span<const float> importance;
};

class Writer {
 public:
  Writer(const GgufExport& model, const QuantizeOptions& options)
      : model_(model), options_(options), pool_(options.n_threads) {}

  QuantizeReport write(const std::string& path) {
    for (const ExportTensor& tensor : model_.tensors) add(tensor);
    if (options_.importance) check_importance();
    GgufWriter writer;
    model_.write_metadata(writer);
    write_keys(writer);
    for (const Plan& plan : plans_)
      writer.add_tensor(plan.tensor->name, plan.target ? ggml_type_of(*plan.target) : plan.tensor->ggml_type,
                        plan.tensor->shape, [this, &plan] { return data(plan); });
    writer.write(path);
    return std::move(report_);
  }

 private:
  // Decides the format of a tensor and collects the messages about it, before anything is written.
  void add(const ExportTensor& tensor) {
    Plan plan{&tensor, target_of(tensor), {}};
    const bool is_same = tensor.row_order.empty() && tensor.column_order.empty() && tensor.row_factors.empty();
    if (plan.target == tensor.format && is_same) plan.target.reset();
    if (!plan.target && !is_same) plan.target = tensor.format;
    if (plan.target) check_requantized(tensor, *plan.target);
    if (plan.target && !is_dense(*plan.target) && options_.importance) plan.importance = importance_of(tensor);
    const Format written = plan.target.value_or(tensor.format.value_or(Format::F32));
    const uint64_t n_bytes = plan.target ? tensor.n_rows() * row_bytes(written, tensor.n_in()) : tensor.n_bytes;
    ++report_.mix[plan.target || tensor.format ? info(written).name : ggml_type_name(tensor.ggml_type)];
    ++report_.n_tensors;
    report_.n_weights += tensor.n_elements();
    report_.bytes_before += tensor.n_bytes;
    report_.bytes_after += n_bytes;
    bytes_of_[written] += n_bytes;
    plans_.push_back(plan);
  }

  // Matrices of Gemma 3n, Gemma 4 and RWKV-7 that are never quantized, but may have 16 bits.
  static bool is_unquantized_matrix(const ExportTensor& tensor) {
    const auto has = [&](const char* part) { return tensor.name.find(part) != std::string::npos; };
    const bool is_of_streams = has("laurel_") || (has("altup_") && !has("_coef"));
    const bool is_of_low_rank = has("time_mix_") && !is_quantizable(tensor.name, 2);
    return has("per_layer_model_proj") || (tensor.shape.size() > 1 && is_of_streams) ||
           (tensor.shape.size() == 2 && is_of_low_rank);
  }

  std::optional<Format> target_of(const ExportTensor& tensor) {
    if (!tensor.format) return std::nullopt;
    const bool is_layer_table = tensor.name == kLayerInputsTable;
    const bool keeps_type = is_unquantized_matrix(tensor) || (is_layer_table && !options_.layer_inputs);
    if (keeps_type && is_dense(*tensor.format)) return tensor.is_gguf_format ? *tensor.format : Format::F16;
    if (!is_layer_table && !is_quantizable(tensor.name, static_cast<int>(tensor.shape.size()))) {
      // llama.cpp computes with these tensors only in F32: vectors, routers, positions, convolutions.
      if (model_.is_converted) return Format::F32;
      return tensor.shape.size() == 1 && is_dense(*tensor.format) ? std::optional(Format::F32) : std::nullopt;
    }
    if (!options_.mix) return tensor.is_gguf_format ? *tensor.format : Format::F16;
    const MixOptions mix{options_.output, options_.embedding, options_.layer_inputs, options_.importance != nullptr};
    const Format target = choose_format(*options_.mix, mix, model_.mix_model, tensor.name, tensor.n_in());
    if (target != choose_format(*options_.mix, mix, model_.mix_model, tensor.name, kAnyBlocks))
      report_.fallbacks.push_back(tensor.name);
    return target;
  }

  void check_requantized(const ExportTensor& tensor, Format target) const {
    if (is_dense(*tensor.format) || options_.allow_requantize || target == tensor.format) return;
    if (is_dense(target) && (options_.allow_decode || !options_.mix)) return;
    throw Error(
        "{}: tensor '{}' is stored as {}: quantizing a quantized tensor again loses more accuracy; use the unquantized "
        "model, or allow it (allow-requantize)",
        model_.source, printable(tensor.name), info(*tensor.format).name);
  }

  std::span<const float> importance_of(const ExportTensor& tensor) {
    const auto weights = options_.importance->find(tensor.name);
    const int64_t n_matrices = tensor.n_rows() / static_cast<int64_t>(tensor.shape[1]);
    if (static_cast<int64_t>(weights.size()) == tensor.n_in() * n_matrices) return weights;
    // Embedding rows are looked up, not multiplied, so their importance is not used.
    if (!weights.empty() && tensor.name != kEmbedding)
      throw Error(
          "{}: '{}' has {} values, but the tensor of {} has rows of {}{}: the importance matrix belongs to another "
          "model",
          printable(options_.importance->path()), printable(tensor.name), weights.size(), model_.source, tensor.n_in(),
          n_matrices > 1 ? fmt::format(" in {} matrices", n_matrices) : "");
    if (tensor.name != kEmbedding) report_.without_importance.push_back(tensor.name);
    return {};
  }

  void check_importance() const {
    bool any = false;
    for (const Plan& plan : plans_) any = any || !options_.importance->find(plan.tensor->name).empty();
    if (!any)
      throw Error(
          "{}: none of its {} entries (the first is '{}') is a tensor of {}: the importance matrix belongs to another "
          "model",
          printable(options_.importance->path()), options_.importance->size(),
          printable(options_.importance->names().front()), model_.source);
  }

  // general.file_type is the mix's number; without a mix, the number of the type with the most bytes.
  void write_keys(GgufWriter& writer) const {
    const auto largest =
        std::max_element(bytes_of_.begin(), bytes_of_.end(), [](auto& a, auto& b) { return a.second < b.second; });
    if (const auto type = options_.mix ? std::optional(options_.mix->file_type) : file_type_of(largest->first))
      writer.set("general.file_type", *type);
    writer.set("general.quantization_version", kQuantizationVersion);
    if (!options_.importance) return;
    const std::string& path = options_.importance->path();
    writer.set("quantize.imatrix.file", path.substr(path.rfind('/') + 1));
    if (!options_.importance->dataset().empty()) writer.set("quantize.imatrix.dataset", options_.importance->dataset());
    writer.set("quantize.imatrix.entries_count", static_cast<uint32_t>(options_.importance->size()));
    writer.set("quantize.imatrix.chunks_count", options_.importance->n_chunks());
  }

  std::vector<uint8_t> data(const Plan& plan) {
    const HostTensor host = plan.tensor->open();
    std::vector<uint8_t> out;
    if (!plan.target) {
      out.assign(host.data, host.data + plan.tensor->n_bytes);
    } else if (plan.tensor->shape.size() == 1) {
      out = encode_vector(plan, host);
    } else {
      out = encode_matrix(plan, host);
    }
    plan.tensor->close(host);
    done_ += plan.tensor->n_bytes;
    if (options_.progress) options_.progress(done_, report_.bytes_before);
    return out;
  }

  std::vector<uint8_t> encode_vector(const Plan& plan, const HostTensor& host) const {
    const int64_t n = plan.tensor->n_in();
    std::vector<float> stored(n), values(n);
    decode_row(host.format, host.data, stored.data(), n);
    const auto& order = plan.tensor->row_order;
    for (int64_t i = 0; i < n; ++i) values[i] = stored[order.empty() ? i : order[i]];
    check_values(plan, 0, bad_value(values, *plan.target));
    std::vector<uint8_t> out(row_bytes(*plan.target, n));
    encode_row(*plan.target, values.data(), out.data(), n);
    return out;
  }

  // Encodes rows in tasks of about ten thousand weights; progress is reported after each batch of tasks.
  std::vector<uint8_t> encode_matrix(const Plan& plan, const HostTensor& host) {
    const int64_t n_in = plan.tensor->n_in(), n_rows = plan.tensor->n_rows();
    const int64_t rows_per_task = std::max<int64_t>(1, kElementsPerTask / n_in);
    const int64_t n_tasks = (n_rows + rows_per_task - 1) / rows_per_task, batch = kTasksPerThread * pool_.size();
    std::vector<uint8_t> out(static_cast<size_t>(n_rows) * row_bytes(*plan.target, n_in));
    std::vector<std::vector<float>> scratch(pool_.size(), std::vector<float>(n_in));
    std::atomic<int64_t> bad_row{n_rows};
    for (int64_t first = 0; first < n_tasks; first += batch) {
      pool_.parallel_for(std::min(batch, n_tasks - first), [&](int64_t task, int thread) {
        const int64_t begin = (first + task) * rows_per_task, end = std::min(begin + rows_per_task, n_rows);
        for (int64_t row = begin; row < end; ++row)
          if (!encode(plan, host, row, scratch[thread], out)) bad_row = row;
      });
      if (bad_row < n_rows) report_bad_row(plan, host, bad_row, scratch[0]);
      const size_t share = plan.tensor->n_bytes * std::min(first + batch, n_tasks) / n_tasks;
      if (options_.progress) options_.progress(done_ + share, report_.bytes_before);
    }
    return out;
  }

  void decode(const Plan& plan, const HostTensor& host, int64_t row, std::vector<float>& values) const {
    const auto& order = plan.tensor->row_order;
    const int64_t stored = order.empty() ? row : order[row];
    decode_row(host.format, host.data + stored * row_bytes(host.format, plan.tensor->n_in()), values.data(),
               plan.tensor->n_in());
    if (const auto& factors = plan.tensor->row_factors; !factors.empty())
      for (float& value : values) value *= factors[stored];
    if (plan.tensor->column_order.empty()) return;
    const std::vector<float> unordered = values;
    for (size_t i = 0; i < values.size(); ++i) values[i] = unordered[plan.tensor->column_order[i]];
  }

  bool encode(const Plan& plan, const HostTensor& host, int64_t row, std::vector<float>& values,
              std::vector<uint8_t>& out) const {
    const size_t n_bytes = row_bytes(*plan.target, plan.tensor->n_in());
    const bool is_reordered = plan.tensor->column_order.empty() && plan.tensor->row_factors.empty();
    if (host.format == *plan.target && is_reordered) {  // only the order of the rows changes
      std::copy_n(host.data + plan.tensor->row_order[row] * n_bytes, n_bytes, out.data() + row * n_bytes);
      return true;
    }
    decode(plan, host, row, values);
    if (bad_value(values, *plan.target)) return false;
    const size_t slice = static_cast<size_t>(row) / plan.tensor->shape[1] * values.size();
    const float* importance = plan.importance.empty() ? nullptr : plan.importance.data() + slice;
    encode_row(*plan.target, values.data(), out.data() + row * n_bytes, plan.tensor->n_in(), importance);
    return true;
  }

  // The first value that is not finite or does not fit the target.
  static std::optional<float> bad_value(const std::vector<float>& values, Format target) {
    const float max_size = is_wide(target) ? std::numeric_limits<float>::max() : kLargestF16;
    for (const float value : values)
      if (!(std::fabs(value) <= max_size)) return value;
    return std::nullopt;
  }

  void check_values(const Plan& plan, int64_t row, std::optional<float> bad) const {
    if (!bad) return;
    if (!std::isfinite(*bad))
      throw Error("{}: tensor '{}', row {}: {} is not a finite number: the file is damaged, or its training failed",
                  model_.source, printable(plan.tensor->name), row, *bad);
    throw Error("{}: tensor '{}', row {}: {} is more than {} can hold ({}): use BF16", model_.source,
                printable(plan.tensor->name), row, *bad, info(*plan.target).name, kLargestF16);
  }

  void report_bad_row(const Plan& plan, const HostTensor& host, int64_t row, std::vector<float>& values) const {
    decode(plan, host, row, values);
    check_values(plan, row, bad_value(values, *plan.target));
  }

  static constexpr int64_t kAnyBlocks = 1 << 20;  // a row length that every block size divides

  const GgufExport& model_;
  const QuantizeOptions& options_;
  ThreadPool pool_;
  std::vector<Plan> plans_;
  std::map<Format, uint64_t> bytes_of_;
  QuantizeReport report_;
  size_t done_ = 0;
};

}  // namespace

QuantizeReport write_gguf(const GgufExport& model, const QuantizeOptions& options, const std::string& path) {
  return Writer(model, options).write(path);
}

}  // namespace ingot
