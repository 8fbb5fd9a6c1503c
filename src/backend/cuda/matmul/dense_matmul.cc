#include "backend/cuda/matmul/dense_matmul.h"

#include <cublasLt.h>

#include <algorithm>
#include <tuple>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/lru_map.h"

namespace ingot::cuda {
namespace {

void check_lt(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) throw Error("cuBLASLt: {} failed: {}", call, cublasLtGetStatusString(status));
}

cudaDataType_t type_of(DType dtype) {
  return dtype == DType::kE4M3 ? CUDA_R_8F_E4M3 : dtype == DType::kF16 ? CUDA_R_16F : CUDA_R_32F;
}

// The largest power of two, up to 256, that divides the address.
int alignment(const void* p) {
  const auto address = reinterpret_cast<uintptr_t>(p) | 256;
  return static_cast<int>(address & (~address + 1));
}

// cuBLASLt finds no kernel without such pointers, so a new plan gets placeholders.
void point_scales(cublasLtMatmulDesc_t operation, const float* of_w, const float* of_x) {
  check_lt(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &of_w, sizeof of_w),
           "A_SCALE_POINTER");
  check_lt(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &of_x, sizeof of_x),
           "B_SCALE_POINTER");
}

}  // namespace

class DenseMatmul::Plans {
 public:
  explicit Plans(const Device& device) : device_(device) { check_lt(cublasLtCreate(&handle_), "Create"); }
  ~Plans() { cublasLtDestroy(handle_); }
  Plans(const Plans&) = delete;
  Plans& operator=(const Plans&) = delete;

  template <auto kDestroy>
  struct Destroy {
    template <class T>
    void operator()(T* made) const {
      kDestroy(made);
    }
  };
  using Operation = std::unique_ptr<std::remove_pointer_t<cublasLtMatmulDesc_t>, Destroy<cublasLtMatmulDescDestroy>>;
  using Layout = std::unique_ptr<std::remove_pointer_t<cublasLtMatrixLayout_t>, Destroy<cublasLtMatrixLayoutDestroy>>;
  struct Plan {
    Operation operation;
    Layout a, b, c;
    cublasLtMatmulAlgo_t algo;
    bool found = false;
  };
  // The elements that share a scale. kRows: a row, in w and x. kColumns: 128 columns of a row, in w and x. kBlocks: 128
  // x 128 in w, 128 columns of a row in x.
  enum class Scales { kNone, kRows, kColumns, kBlocks };
  // n, n_out, n_in, strides of x and y, types of x and y, alignments of w, x, y, scales, whether there is a bias
  using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, DType, DType, int, int, int, Scales, bool>;
  const Plan& plan_for(const Key& key);
  void multiply(const Plan& plan, const Tensor& y, const void* x, const void* w, float alpha, bool accumulate,
                Device& device);

 private:
  static constexpr size_t kMaxPlans = 256;  // more than a model's matrices, each with several numbers of rows
  static Layout layout(DType dtype, int64_t rows, int64_t cols, int64_t stride);

  cublasLtHandle_t handle_ = nullptr;
  const Device& device_;  // whose workspace is used
  LruMap<Key, Plan> plans_{kMaxPlans};
};

DenseMatmul::DenseMatmul(const Device& device) : plans_(std::make_unique<Plans>(device)) {}

DenseMatmul::~DenseMatmul() = default;

DenseMatmul::Plans::Layout DenseMatmul::Plans::layout(DType dtype, int64_t rows, int64_t cols, int64_t stride) {
  cublasLtMatrixLayout_t made = nullptr;
  check_lt(cublasLtMatrixLayoutCreate(&made, type_of(dtype), static_cast<uint64_t>(rows), static_cast<uint64_t>(cols),
                                      stride),
           "MatrixLayoutCreate");
  return Layout(made);
}

// cuBLASLt is column-major, so it computes y^T [n_out, n] = w [n_in, n_out]^T x^T [n_in, n].
const DenseMatmul::Plans::Plan& DenseMatmul::Plans::plan_for(const Key& key) {
  if (const Plan* found = plans_.find(key)) return *found;
  const auto [n, n_out, n_in, x_stride, y_stride, x_type, y_type, w_align, x_align, y_align, scales, has_bias] = key;
  Plan plan;
  cublasLtMatmulDesc_t operation = nullptr;
  check_lt(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "MatmulDescCreate");
  plan.operation.reset(operation);
  const auto describe = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    check_lt(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value), "MatmulDescSetAttribute");
  };
  describe(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  if (has_bias) describe(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  if (scales != Scales::kNone) {
    constexpr int32_t kColumns = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F,
                      kRows = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    const int32_t of_x = scales == Scales::kRows ? kRows : kColumns;
    const int32_t of_w = scales == Scales::kBlocks ? int32_t{CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F} : of_x;
    describe(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, of_w);
    describe(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, of_x);
    const auto* any = static_cast<const float*>(device_.workspace().memory.data());  // must not be null
    point_scales(operation, any, any);
  }
  plan.a = layout(x_type, n_in, n_out, n_in);
  plan.b = layout(x_type, n_in, n, x_stride);
  plan.c = layout(y_type, n_out, n, y_stride);
  cublasLtMatmulPreference_t preference = nullptr;
  check_lt(cublasLtMatmulPreferenceCreate(&preference), "PreferenceCreate");
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check_lt(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
             "PreferenceSetAttribute");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, device_.workspace().memory.size());
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(w_align));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(x_align));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(y_align));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(y_align));
  cublasLtMatmulHeuristicResult_t result;
  int n_results = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle_, operation, plan.a.get(), plan.b.get(), plan.c.get(), plan.c.get(), preference, 1, &result, &n_results);
  cublasLtMatmulPreferenceDestroy(preference);
  plan.found = status == CUBLAS_STATUS_SUCCESS && n_results > 0;
  if (plan.found) plan.algo = result.algo;
  return *plans_.put(key, std::move(plan));
}

bool DenseMatmul::run(const Tensor& y, const Tensor& x, const void* w, float alpha, bool accumulate, Device& device,
                      const float* bias) {
  CHECK(y.dtype == DType::kF32 || (y.dtype == x.dtype && bias == nullptr));
  if (x.rows == 0) return true;
  const Plans::Plan& plan =
      plans_->plan_for({x.rows, y.cols, x.cols, x.stride, y.stride, x.dtype, y.dtype, alignment(w), alignment(x.data),
                        alignment(y.data), Plans::Scales::kNone, bias != nullptr});
  if (bias != nullptr)
    check_lt(cublasLtMatmulDescSetAttribute(plan.operation.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias),
             "BIAS_POINTER");
  if (plan.found) plans_->multiply(plan, y, x.data, w, alpha, accumulate, device);
  return plan.found;
}

bool DenseMatmul::run_float8(const Tensor& y, const Float8Rows& x, const PackedWeight& w, bool accumulate,
                             Device& device) {
  constexpr int64_t kFewRows = 64;  // up to here, columns are faster than blocks
  if (w.n_out % 16 != 0) return false;
  using Scales = Plans::Scales;
  const Scales scales = x.whole_rows                                     ? Scales::kRows
                        : w.grid == ScaleGrid::kBlocks && x.n > kFewRows ? Scales::kBlocks
                                                                         : Scales::kColumns;
  const Plans::Plan& plan = plans_->plan_for({x.n, w.n_out, w.n_in, w.n_in, y.stride, DType::kE4M3, y.dtype,
                                              alignment(w.data), alignment(x.data), alignment(y.data), scales, false});
  if (!plan.found) return false;
  const auto* of_w = static_cast<const float*>(w.scales) + (scales == Scales::kBlocks ? blocks_at(w.n_out, w.n_in) : 0);
  point_scales(plan.operation.get(), of_w, x.scales);
  plans_->multiply(plan, y, x.data, w.data, 1.0f, accumulate, device);
  return true;
}

void DenseMatmul::Plans::multiply(const Plan& plan, const Tensor& y, const void* x, const void* w, float alpha,
                                  bool accumulate, Device& device) {
  const float beta = accumulate ? 1.0f : 0.0f;
  const Memory& workspace = device.workspace().memory;
  check_lt(cublasLtMatmul(handle_, plan.operation.get(), &alpha, w, plan.a.get(), x, plan.b.get(), &beta, y.data,
                          plan.c.get(), y.data, plan.c.get(), &plan.algo, workspace.data(), workspace.size(),
                          device.stream()),
           "Matmul");
}

}  // namespace ingot::cuda
