#include "backend/cuda/matmul/products.h"

#include <algorithm>
#include <utility>

namespace ingot::cuda {
namespace {

const float* data_of(const Tensor& bias) { return bias ? bias.f32() : nullptr; }

// The rows of n that are multiplied as 8-bit floats.
int64_t float8_group(int64_t n, bool whole_rows) { return whole_rows ? n : n - n % kFloat8Group; }

constexpr int64_t kMaxDeferred = 16384;  // most columns of a row whose norm a product computes

}  // namespace

Products::Input Products::input_of(const Tensor& x, const Tensor& normed, const NormArgs& args, const Weight& w) {
  if (!args.weight) return {core_.aligned(x)};
  const DeferredNorm norm_later{normed, x, args};
  const bool can_wait = core_.act == DType::kF16 && !core_.deterministic && can_defer(norm_later) &&
                        x.cols <= kMaxDeferred && normed.dtype == core_.act && on_16_bytes(normed) &&
                        choice_.kernel_for(w, x.rows).run == matvec;
  if (can_wait) return {.x = normed, .norm = norm_later};
  Input input{normed};
  if (norm_quantized(input, x, args, w)) return input;
  norm_rows(normed, x, args, device_, rounds_input(w, x.rows));
  check_launch("norm_rows");
  return input;
}

// Whether n rows are rounded to 8 bits before they are multiplied with w. This saves power for the same reason as the
// rounding of copies (DeviceWeights::add_copy), and time, because products of many rows run at the limit of power. It
// changes a row less than the quantization has changed w. Weights in 16 bits have no copies, so their rows keep 11
// bits.
bool Products::rounds_input(const Weight& w, int64_t n) {
  return core_.act == DType::kF16 && choice_.kernel_for(w, n).halves;
}

// Writes the norm of x to the input, also as 8-bit floats if the first product needs those.
bool Products::norm_quantized(Input& input, const Tensor& x, const NormArgs& args, const Weight& weight) {
  if (!choice_.kernel_for(weight, x.rows).float8 || !can_norm_quantize(input.x, x, args)) return false;
  const bool whole_rows = takes_whole_rows(weights_.ready(weight), x.rows);
  const int64_t n = float8_group(x.rows, whole_rows);
  if (n == 0) return false;
  void* to = core_.memory.scratch(Scratch::kDecoded, float8_rows_bytes(n, x.cols));
  input.float8 = norm_quantize(to, input.x, x, args, n, whole_rows, device_);
  check_launch("norm_quantize");
  return true;
}

// The first product of an input computes and writes the norm. Later products read it.
void Products::launch(const MatmulKernel& kernel, Matvec m, Input& input) {
  m.x = core_.aligned(input.x);
  if (input.norm && kernel.run != matvec) {
    norm_rows(input.norm->y, input.norm->x, input.norm->args, device_);
    check_launch("norm_rows");
    input.norm.reset();
  }
  const std::optional<DeferredNorm> norm = std::exchange(input.norm, std::nullopt);
  if (norm) m.norm = &*norm;
  if (kernel.run == matvec) m.arranged = core_.memory.scratch(Scratch::kArranged, matvec_scratch(m.x));
  m.batch_invariant = core_.deterministic;
  m.specialised = choice_.specialised_for(*m.jobs[0].w);
  kernel.run(m, device_);
  check_launch(kernel.name);
}

// y = x w^T + bias, or y += x w^T + bias.
void Products::run(const Tensor& y, Input& input, const Weight& weight, Tensor bias, bool accumulate) {
  CHECK_EQ(input.x.cols, weight.n_in);
  CHECK_EQ(y.cols, weight.n_out);
  const PackedWeight& w = weights_.ready(weight);
  const MatmulKernel& kernel = choice_.kernel_for(weight, input.x.rows);
  if (kernel.run != nullptr)
    return launch(kernel, {.jobs = {{&w, data_of(bias)}}, .y = {y}, .n_jobs = 1, .accumulate = accumulate}, input);
  if (!library_product(y, input, w, kernel, bias, accumulate)) {
    const Tensor x = core_.in_act_dtype(input.x);
    if (w.layout != Layout::kDense && (kernel.decodes || kernel.float8 || kernel.halves)) {
      input.float8.reset();  // the decoded weight overwrites it
      decoded_product(y, x, w, accumulate);
    } else {
      plain_matmul(y, x, w, accumulate, device_);
      check_launch("plain_matmul");
    }
  }
  if (bias) {
    add_rows(y, bias, true, device_);
    check_launch("add_rows");
  }
}

// Returns false, and leaves y unchanged, if cuBLASLt cannot read the weight as it is stored. Empties a bias that it has
// added.
bool Products::library_product(const Tensor& y, Input& input, const PackedWeight& w, const MatmulKernel& kernel,
                               Tensor& bias, bool accumulate) {
  if (kernel.float8) return float8_product(y, input, w, accumulate);
  if (kernel.decodes || core_.deterministic) return false;
  const PackedWeight* dense = kernel.halves ? w.halves : &w;
  if (dense == nullptr) return false;
  const float* added = y.dtype == DType::kF32 ? data_of(bias) : nullptr;
  if (!dense_.run(y, core_.in_act_dtype(input.x), dense->data, dense->factor, accumulate, device_, added)) return false;
  if (added != nullptr) bias = {};
  return true;
}

// Quantizes the input to 8-bit floats: all rows, or only whole groups of rows.
void Products::quantize(Input& input, bool whole_rows) {
  const int64_t n_grouped = float8_group(input.x.rows, whole_rows);
  if (n_grouped == 0 || (input.float8 && input.float8->whole_rows == whole_rows)) return;
  void* to = core_.memory.scratch(Scratch::kDecoded, float8_rows_bytes(n_grouped, input.x.cols));
  const Tensor x = core_.aligned(core_.in_act_dtype(input.x));
  input.float8 = quantize_rows(to, x.slice_rows(0, n_grouped), whole_rows, device_);
  check_launch("quantize_rows");
}

// Returns false if cuBLASLt has no kernel for these sizes. The products of one input share its quantized rows. Rows
// after the last whole group are multiplied as halves.
bool Products::float8_product(const Tensor& y, Input& input, const PackedWeight& w, bool accumulate) {
  const int64_t n = input.x.rows;
  const int at_once = most_float8_rows(device_.limits(), w.n_in);
  quantize(input, takes_whole_rows(w, n));
  const int64_t n_grouped = input.float8 ? input.float8->n : 0;
  if (n_grouped < n && at_once == 0) return false;
  if (n_grouped > 0 && !dense_.run_float8(y.slice_rows(0, n_grouped), *input.float8, w, accumulate, device_))
    return false;
  const Tensor x = core_.aligned(core_.in_act_dtype(input.x));
  for (int64_t first = n_grouped; first < n; first += at_once) {
    const int64_t n_rows = std::min<int64_t>(at_once, n - first);
    float8_rows({.x = x.slice_rows(first, n_rows),
                 .jobs = {{&w, nullptr}},
                 .y = {y.slice_rows(first, n_rows)},
                 .n_jobs = 1,
                 .accumulate = accumulate},
                device_);
    check_launch("float8_rows");
  }
  return true;
}

// Decodes one slice of the weight at a time to halves, which stay in the L2 cache until the product reads them.
void Products::decoded_product(const Tensor& y, const Tensor& x, const PackedWeight& w, bool accumulate) {
  const int64_t row_bytes = w.n_in * static_cast<int64_t>(dtype_bytes(core_.act)),
                slice = decoded_rows(w.n_out, row_bytes);
  void* decoded = core_.memory.scratch(Scratch::kDecoded, static_cast<size_t>(slice * row_bytes));
  for (int64_t first = 0; first < w.n_out; first += slice) {
    const int64_t n = std::min(slice, w.n_out - first);
    unpack_rows(decoded, w, first, n, device_);
    check_launch("unpack_rows");
    const Tensor part{static_cast<char*>(y.data) + first * static_cast<int64_t>(dtype_bytes(y.dtype)), y.dtype, y.rows,
                      n, y.stride};
    if (!core_.deterministic) {
      CHECK(dense_.run(part, x, decoded, w.factor, accumulate, device_));
      continue;
    }
    const PackedWeight halves{.factor = w.factor, .n_out = n, .n_in = w.n_in, .data = decoded};
    tile_matmul({.x = core_.aligned(x),
                 .jobs = {{&halves, nullptr}},
                 .y = {part},
                 .n_jobs = 1,
                 .accumulate = accumulate,
                 .batch_invariant = true,
                 .decoded = true},
                device_);
    check_launch("tile_matmul");
  }
}

void Products::run(const Tensor& y, const Tensor& x, const Weight& w, const Tensor& bias) {
  Input input{x};
  run(y, input, w, bias, false);
}

}  // namespace ingot::cuda
