// A GGUF file is copied key by key and tensor by tensor, whatever its architecture. For a directory, the tensors are
// those of the table (model/config/tensors.h), and model/export/gguf_keys.cc writes the keys from the Config.
#include "model/export/gguf_export.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <numeric>

#include "base/error.h"
#include "base/log.h"
#include "io/gguf/gguf.h"
#include "model/config/multipliers.h"
#include "model/export/gguf_keys.h"
#include "model/export/head_export.h"
#include "model/files/tensor_finder.h"
#include "model/vectors/embedder.h"

namespace ingot {
namespace {

HostTensor host_tensor(const Gguf& file, const TensorInfo& tensor) {
  return {tensor.format.value_or(Format::F32), tensor.n_elements() / tensor.shape[0], tensor.shape[0],
          file.data(tensor).data()};
}

// Read from the keys that all architectures share; without these keys, the mix does not depend on layers.
MixModel mix_model_of(const Gguf& file) {
  const Metadata& metadata = file.metadata();
  const std::string arch(metadata.find_string("general.architecture").value_or(""));
  auto number = [&](const char* key, uint32_t fallback) -> uint32_t {
    const Value* value = metadata.find(arch + key);
    return value != nullptr && !value->is_array() ? metadata.find_u32(arch + key).value_or(fallback) : fallback;
  };
  const uint32_t n_layers = number(".block_count", 0), n_heads = number(".attention.head_count", 1);
  const uint32_t n_kv = std::max(1u, number(".attention.head_count_kv", n_heads));
  return {.n_layers = static_cast<int>(n_layers),
          .heads_per_kv = static_cast<int>(n_heads / n_kv),
          .tied = file.find("output.weight") == nullptr,
          .is_large = n_layers == 80 && n_heads != n_kv};
}

// Copies all keys except those about split files, and those about the old quantization.
void copy_metadata(const Gguf& file, GgufWriter& writer) {
  for (const Metadata::Entry& entry : file.metadata().entries())
    if (!entry.key.starts_with("split.") && !entry.key.starts_with("quantize.imatrix."))
      writer.set(entry.key, entry.value);
}

GgufExport of_gguf(std::shared_ptr<const Checkpoint> checkpoint, const Gguf& file) {
  GgufExport out{.source = printable(file.path()), .mix_model = mix_model_of(file)};
  if (file.tensors().empty())
    throw Error("{}: this file has no tensors: it holds a vocabulary, not a model", out.source);
  const auto type = file.metadata().find_string("general.type");
  if (type == "adapter" || type == "imatrix")
    throw Error("{}: this file is of type '{}', not a model: give the model's own file", out.source, *type);
  for (const TensorInfo& tensor : file.tensors()) {
    out.tensors.push_back({.name = std::string(tensor.name),
                           .shape = {tensor.dims().begin(), tensor.dims().end()},
                           .ggml_type = tensor.ggml_type,
                           .format = tensor.format,
                           .n_bytes = tensor.n_bytes,
                           .open = [checkpoint, &file, &tensor] { return host_tensor(file, tensor); },
                           .close = [](const HostTensor&) {}});
  }
  out.write_metadata = [checkpoint, &file](GgufWriter& writer) { copy_metadata(file, writer); };
  return out;
}

// Finds the tensors of a directory through the table.
class DirectoryExport {
 public:
  DirectoryExport(const Checkpoint& checkpoint, const Config& config)
      : checkpoint_(checkpoint),
        config_(config),
        writes_no_text_(read_embed_facts(checkpoint).pooling.has_value()),
        source_(checkpoint.weights()),
        finder_(std::make_shared<TensorFinder>(*source_, config_)) {}

  GgufExport make() {
    out_.source = source_->name();
    out_.is_converted = true;
    add_rows(model_rows(), 0);
    for (int layer = 0; layer < config_.n_layers; ++layer)
      for (const PartKind* kind : parts_of(config_, layer)) add_rows(kind->rows(), layer);
    const RopeScaling& scaling = config_.rope_scaling;
    if (config_.arch->normalizes_embedding) add_head_norms();
    if (scaling.kind == RopeScalingKind::kLlama3 || scaling.kind == RopeScalingKind::kProportional) add_rope_divisors();
    if (scaling.kind == RopeScalingKind::kLongRope) {
      add_frequencies("rope_factors_long.weight", scaling.long_factors);
      add_frequencies("rope_factors_short.weight", scaling.short_factors);
    }
    out_.mix_model = {.n_layers = config_.n_layers,
                      .heads_per_kv = config_.n_heads / config_.n_kv_heads,
                      .tied = tied_,
                      .is_large = config_.n_layers == 80 && config_.n_heads != config_.n_kv_heads};
    if (tied_ && config_.tied_output == false && !writes_no_text_)
      throw Error("{}: the output matrix is missing, and the model does not tie it to the embedding", out_.source);
    if (tied_ && config_.part<Multipliers>().are_folded && !writes_no_text_)
      throw Error(
          "{}: GGUF cannot store the multipliers of a matrix that is both embedding and output: run the directory "
          "without converting it",
          out_.source);
    for (ExportTensor& tensor : head_export(checkpoint_, *source_, config_.dim, config_.arch->encoder))
      out_.tensors.push_back(std::move(tensor));
    check_unused(*source_, config_, source_->unused());
    if (config_.arch->encoder)
      for (const std::string& name : source_->unused())
        log_warn("{}: tensor '{}' is not used", out_.source, printable(name));
    warn_about_llama_cpp();
    return std::move(out_);
  }

 private:
  void add_rows(const TensorRows& rows, int layer) {
    for (const VectorRow& row : rows.vectors) {
      if (!applies(row, config_, layer) || row.gguf_slice.first != nullptr) continue;
      if (HostTensor key; *row.gguf_name == 0) {  // a key of GGUF (gguf_keys.cc)
        finder_->find(row, layer, key);
        continue;
      }
      if (has_tensor(gguf_name(row, layer))) continue;  // of several parts
      VectorRow whole = row;
      if (row.gguf_slice.total != nullptr) whole.n = {row.gguf_slice.total}, whole.gguf_slice = whole.hf_slice = {};
      if (add(whole, layer, false) && layer == 0) fit_to_gguf(out_.tensors.back());
    }
    std::vector<Weight& (*)(void*)> done;
    std::string_view fused;  // the last matrix of several parts
    for (const MatrixRow& row : rows.matrices) {
      const bool is_output = &row == &output_row();
      if ((is_output && (config_.tied_output == true || writes_no_text_)) || !applies(row, config_, layer) ||
          std::ranges::find(done, row.member) != done.end())
        continue;
      if (row.gguf_slice.total == nullptr && has_tensor(gguf_name(row, layer))) continue;  // of several parts
      bool added = row.gguf_name == fused;
      if (row.gguf_slice.total == nullptr) {
        added = add(row, layer, true);
        if (added && is_output) tied_ = false;
      } else if (row.gguf_slice.first == nullptr) {  // GGUF also fuses the parts: export the whole once
        MatrixRow whole = row;
        whole.n_out = {row.gguf_slice.total};
        whole.gguf_slice = whole.hf_slice = {};
        added = row.gguf_split != nullptr ? add_split(whole, layer) : add(whole, layer, true);
        if (added) fused = row.gguf_name;
      }
      if (added) done.push_back(row.member);
    }
  }

  bool has_tensor(std::string_view name) const {
    return std::ranges::find(out_.tensors, name, &ExportTensor::name) != out_.tensors.end();
  }

  // Drops rows that readers of GGUF do not expect: the positions before the first, which are for padding, and the
  // second token type if the tokenizer marks both texts of a pair with type 0. (Readers would mark the second text with
  // type 1.)
  void fit_to_gguf(ExportTensor& tensor) const {
    const bool is_position = tensor.name == "position_embd.weight";
    const bool one_type = tensor.name == "token_types.weight" && has_classifier(checkpoint_) &&
                          !checkpoint_.tokenizer()->marks_second();
    if (!is_position && !one_type) return;
    const auto n_rows = static_cast<size_t>(is_position ? config_.n_ctx_train : 1);
    tensor.row_order.resize(n_rows);
    std::iota(tensor.row_order.begin(), tensor.row_order.end(), is_position ? config_.first_position : 0);
    tensor.n_bytes = tensor.n_bytes / tensor.shape[1] * n_rows;
    tensor.shape[1] = n_rows;
  }

  template <class Row>
  bool add(const Row& row, int layer, bool is_matrix) {
    HostTensor host;
    if (!finder_->find(row, layer, host)) return false;
    const int64_t n_out = host.n_out, n_in = host.n_in,
                  count = count_of(row, config_);
    const std::optional<uint32_t> type_id = info(host.format).ggml_type;
    ExportTensor tensor{.name = gguf_name(row, layer),
                        .shape = {static_cast<uint64_t>(n_in)},
                        .ggml_type = type_id.value_or(0),
                        .format = host.format,
                        .is_gguf_format = type_id.has_value(),
                        .n_bytes = static_cast<uint64_t>(n_out) * row_bytes(host.format, n_in)};
    if (is_matrix) tensor.shape.push_back(static_cast<uint64_t>(n_out / count));
    if constexpr (requires { row.gguf_ones; }) tensor.shape.resize(tensor.shape.size() + row.gguf_ones, 1);
    if (row.count) tensor.shape.push_back(static_cast<uint64_t>(count));
    if (source_->dialect() == Dialect::kHf) {
      if (row.gguf_rows != nullptr)
        tensor.row_order = row.gguf_rows(config_, is_matrix || row.count ? n_out : n_in);
      if constexpr (requires { row.gguf_columns; })
        if (row.gguf_columns != nullptr) tensor.column_order = row.gguf_columns(config_, n_in);
      if constexpr (requires { row.gguf_factor; })
        if (row.gguf_factor != nullptr && config_.part<Multipliers>().are_folded)
          for (int64_t i = 0; i < n_out; ++i) tensor.row_factors.push_back(row.gguf_factor(config_, i));
    }
    tensor.open = [source = source_, finder = finder_, row, layer] {  // keeps the source alive for the finder
      HostTensor again;
      CHECK(finder->find(row, layer, again));
      return again;
    };
    tensor.close = [source = source_, finder = finder_](const HostTensor& opened) { finder->release(opened); };
    finder_->release(host);
    out_.tensors.push_back(std::move(tensor));
    return true;
  }

  // Adds the tensors that GGUF files have in place of the row's.
  bool add_split(const MatrixRow& row, int layer) {
    if (!add(row, layer, true)) return false;
    const ExportTensor all = std::move(out_.tensors.back());
    out_.tensors.pop_back();
    for (auto& [name, order] : row.gguf_split(config_)) {
      ExportTensor part = all;
      part.name = fmt::format(fmt::runtime(name), layer);
      part.n_bytes = all.n_bytes / all.shape[1] * order.size();
      part.shape[1] = order.size();
      part.row_order = std::move(order);
      out_.tensors.push_back(std::move(part));
    }
    return true;
  }

  // The name that this architecture's current files use: the first of several, except for one norm in some files.
  template <class Row>
  std::string gguf_name(const Row& row, int layer) const {
    std::string_view names = row.gguf_name;
    const bool is_ffn_norm = names.ends_with("|blk.{}.ffn_norm");
    if (is_ffn_norm && config_.arch->gguf_ffn_norm_is_post) names = "blk.{}.post_attention_norm.weight";
    if (is_ffn_norm && std::string_view(config_.arch->gguf_name) == "falcon-h1") names = "blk.{}.ffn_norm";
    return fmt::format(fmt::runtime(names.substr(0, names.find('|'))), layer);
  }

  // Warns if llama.cpp's loader of the architecture (src/models/) rejects the file, or reads it in a different way.
  void warn_about_llama_cpp() const {
    const std::string_view arch = config_.arch->gguf_name;
    const auto is_one_of = [&](std::initializer_list<std::string_view> names) {
      return std::ranges::find(names, arch) != names.end();
    };
    const auto has = [&](std::string_view name) {
      return std::ranges::any_of(out_.tensors, [&](const ExportTensor& t) { return t.name.ends_with(name); });
    };
    const auto warn = [&](const char* what) {
      log_warn("{}: llama.cpp {} (architecture '{}')", out_.source, what, arch);
    };
    if (arch == "modern-bert" && has("cls.bias"))
      warn("cannot load the file: it does not support a bias of the classifier's first layer");
    for (const ExportTensor& tensor : out_.tensors)
      if (tensor.name == "dense_3.weight" && tensor.shape[1] != static_cast<uint64_t>(config_.dim))
        warn("cannot load the file: it needs a last dense layer of the model's width");
    const auto types = std::ranges::find(out_.tensors, "token_types.weight", &ExportTensor::name);
    if (types != out_.tensors.end() && types->shape[1] > 1 && has_classifier(checkpoint_))
      warn("computes other results from the file: it gives both texts of a pair the same token type");
    if (config_.arch->encoder) return;
    if (tied_ && !writes_no_text_ && is_one_of({"olmo2", "olmoe", "minimax-m2", "gpt-oss"}))
      warn("cannot load the file: it needs an output matrix, which this model ties to the embedding");
    if (has(".attn_output.bias") && !is_one_of({"llama", "granite", "granitemoe", "gpt-oss", "starcoder2", "phimoe"}))
      warn("cannot load the file: it does not support a bias of the attention's output, o_proj.bias");
    if (has(".ffn_down.bias") && !is_one_of({"llama", "granite", "granitemoe", "starcoder2"}))
      warn("cannot load the file: it does not support biases of the feed-forward");
    if (is_one_of({"recurrentgemma", "olmo-hybrid", "lfm3"})) warn("cannot load the file: it does not know the architecture");
    if (arch == "gemma3n")
      warn("cannot load the file: it needs keys and values of layers that read those of earlier layers");
    if (arch == "seed_oss") warn("cannot load the file in some of its releases");
    if (config_.sliding_window > 0 &&
        is_one_of({"llama", "phi3", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "smollm3", "granite", "granitemoe"}))
      warn("computes other results from the file: it ignores the attention window of such models");
  }

  // Norms of q and k without a weight: GGUF files have weights, and the one of q has the factor of the scores.
  void add_head_norms() {
    const auto n = static_cast<size_t>(config_.head_dim);
    const float factor = config_.score_scale() * std::sqrt(static_cast<float>(n));
    for (int layer = 0; layer < config_.n_layers; ++layer) {
      add_frequencies(fmt::format("blk.{}.attn_q_norm.weight", layer).c_str(), std::vector<float>(n, factor));
      add_frequencies(fmt::format("blk.{}.attn_k_norm.weight", layer).c_str(), std::vector<float>(n, 1.0f));
    }
  }

  // GGUF stores Llama 3's scaling, and the frequencies that proportional rope leaves out, as divisors of the frequencies.
  void add_rope_divisors() {
    const std::vector<float> plain = rope_frequencies(config_.rot_dim, config_.rope_theta, {}, {});
    const std::vector<float> scaled = rope_frequencies(config_.rot_dim, config_.rope_theta, config_.rope_scaling, {});
    std::vector<float> divisors(plain.size());
    // Readers divide: a frequency of 0 becomes one that does not rotate within any context.
    for (size_t i = 0; i < plain.size(); ++i) divisors[i] = scaled[i] > 0 ? plain[i] / scaled[i] : 1e30f;
    add_frequencies("rope_freqs.weight", divisors);
  }

  void add_frequencies(const char* name, const std::vector<float>& values) {
    out_.tensors.push_back(computed_tensor(name, {values.size()}, values));
  }

  const Checkpoint& checkpoint_;
  const Config& config_;
  const bool writes_no_text_;  // an embedding model needs no output matrix
  std::shared_ptr<WeightSource> source_;
  std::shared_ptr<TensorFinder> finder_;
  GgufExport out_;
  bool tied_ = true;
};

}  // namespace

int64_t ExportTensor::n_rows() const {
  return static_cast<int64_t>(std::accumulate(shape.begin() + 1, shape.end(), uint64_t{1}, std::multiplies<>()));
}

GgufExport gguf_export(std::shared_ptr<const Checkpoint> checkpoint) {
  if (const Gguf* file = checkpoint->gguf()) return of_gguf(std::move(checkpoint), *file);
  const Config config = checkpoint->config();
  GgufExport out = DirectoryExport(*checkpoint, config).make();
  const auto types = std::ranges::find(out.tensors, "token_types.weight", &ExportTensor::name);
  const uint64_t n_types = types == out.tensors.end() ? 1 : types->shape[1];
  out.write_metadata = [checkpoint, config, n_types](GgufWriter& writer) {
    write_gguf_keys(*checkpoint, config, writer);
    // llama.cpp loads no BERT model without this key.
    if (config.arch->encoder) writer.set("tokenizer.ggml.token_type_count", static_cast<uint32_t>(n_types));
  };
  return out;
}

}  // namespace ingot
