#include "backend/ref/ref_backend.h"

#include <cstring>
#include <deque>
#include <vector>

namespace ingot {
namespace {

class RefBackend final : public Backend {
 public:
  std::string name() const override { return "ref"; }
  std::string description() const override { return "ref: plain C++, the oracle, one thread"; }
  bool is_host() const override { return true; }
  Tensor alloc(DType dtype, int64_t rows, int64_t cols) override {
    buffers_.emplace_back(static_cast<size_t>(rows * cols) * dtype_bytes(dtype));
    allocated_ += buffers_.back().size();
    return {buffers_.back().data(), dtype, rows, cols, cols};
  }
  size_t allocated_bytes() const override { return allocated_; }
  void upload(const Tensor& to, const void* from) override { copy_rows_in(to, from); }
  void download(void* to, const Tensor& from) override { copy_rows_out(to, from); }
  // This is no faster. But with it, tests of ranks on this backend cover norms after sums for all models.
  bool norms_sums(const Tensor&, const NormArgs& norm) const override { return static_cast<bool>(norm.weight); }

 private:
  std::deque<std::vector<char>> buffers_;
  size_t allocated_ = 0;
};

size_t bytes_of_row(const Tensor& t) { return static_cast<size_t>(t.cols) * dtype_bytes(t.dtype); }
char* row_of(const Tensor& t, int64_t row) {
  return static_cast<char*>(t.data) + row * t.stride * static_cast<int64_t>(dtype_bytes(t.dtype));
}

}  // namespace

void copy_rows_in(const Tensor& to, const void* from) {
  const size_t n = bytes_of_row(to);
  for (int64_t i = 0; i < to.rows; ++i)
    std::memcpy(row_of(to, i), static_cast<const char*>(from) + static_cast<size_t>(i) * n, n);
}

void copy_rows_out(void* to, const Tensor& from) {
  const size_t n = bytes_of_row(from);
  for (int64_t i = 0; i < from.rows; ++i)
    std::memcpy(static_cast<char*>(to) + static_cast<size_t>(i) * n, row_of(from, i), n);
}

std::unique_ptr<Backend> create_ref_backend() { return std::make_unique<RefBackend>(); }

}  // namespace ingot
