#include "backend/trace.h"

#include <cmath>

#include "backend/ref/host_rows.h"
#include "base/error.h"

namespace ingot {
namespace {

class Trace final : public Wrapped {
 public:
  Trace(std::unique_ptr<Backend> inner, std::shared_ptr<TraceFile> file, std::string track)
      : Wrapped(std::move(inner)), file_(std::move(file)), track_(std::move(track)) {}

 private:
  void around(const char* op, const Tensor& out, const std::function<void()>& call) override {
    const auto begin = TraceFile::Clock::now();
    call();
    inner().synchronize();
    file_->span(track_.c_str(), op, begin, TraceFile::Clock::now(),
                fmt::format("\"rows\": {}, \"cols\": {}", out.rows, out.cols));
  }

  const std::shared_ptr<TraceFile> file_;
  const std::string track_;
};

class NanCheck final : public Wrapped {
 public:
  using Wrapped::Wrapped;

 private:
  void around(const char* op, const Tensor& out, const std::function<void()>& call) override {
    call();
    ++n_ops_;
    look_at(op, out);
  }

  // The CPU rounds the inputs of a product to int8, which may hide a NaN. So the normed input is also checked.
  void around_normed(const char* op, const Tensor& normed, const Tensor& out,
                     const std::function<void()>& call) override {
    call();
    ++n_ops_;
    if (normed && is_host()) look_at(op, normed);
    look_at(op, out);
  }

  void look_at(const char* op, const Tensor& out) {
    HostRows host(inner());
    const Tensor read = host.in(out);
    for (int64_t row = 0; row < read.rows && read.dtype == DType::kF32; ++row)
      for (int64_t col = 0; col < read.cols; ++col)
        if (std::isnan(read.f32(row)[col]))
          throw Error("{} (op {} of the run) wrote NaN at row {}, column {} of [{}, {}]", op, n_ops_, row, col,
                      read.rows, read.cols);
  }

  int64_t n_ops_ = 0;
};

}  // namespace

std::unique_ptr<Backend> trace_backend(std::unique_ptr<Backend> inner, std::shared_ptr<TraceFile> file,
                                       std::string track) {
  return std::make_unique<Trace>(std::move(inner), std::move(file), std::move(track));
}
std::unique_ptr<Backend> nan_check_backend(std::unique_ptr<Backend> inner) {
  return std::make_unique<NanCheck>(std::move(inner));
}

}  // namespace ingot
