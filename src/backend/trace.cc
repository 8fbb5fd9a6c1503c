#include "backend/trace.h"

#include <cmath>
#include <vector>

#include "base/error.h"

namespace ingot {
namespace {

class Trace final : public Wrapped {
 public:
  Trace(std::unique_ptr<Backend> inner, std::shared_ptr<TraceFile> file) : Wrapped(std::move(inner)), file_(std::move(file)) {}

 private:
  void around(const char* verb, const Tensor& out, const std::function<void()>& call) override {
    const auto begin = TraceFile::Clock::now();
    call();
    inner().synchronize();
    file_->span("verbs", verb, begin, TraceFile::Clock::now(), fmt::format("\"rows\": {}, \"cols\": {}", out.rows, out.cols));
  }

  const std::shared_ptr<TraceFile> file_;
};

class NanCheck final : public Wrapped {
 public:
  using Wrapped::Wrapped;

 private:
  void around(const char* verb, const Tensor& out, const std::function<void()>& call) override {
    call();
    ++n_verbs_;
    values_.resize(out.rows * out.cols);
    inner().download(values_.data(), out);
    for (size_t i = 0; i < values_.size(); ++i)
      if (std::isnan(values_[i]))
        throw Error("{} (verb {} of the run) wrote NaN at row {}, column {} of [{}, {}]", verb, n_verbs_, i / out.cols,
                    i % out.cols, out.rows, out.cols);
  }

  std::vector<float> values_;
  int64_t n_verbs_ = 0;
};

// The base's bodies run on this object, so their primitives pass through to the inner backend.
class Unfused final : public Wrapped {
 public:
  using Wrapped::Wrapped;
  std::string description() const override { return inner_description() + ", unfused"; }
  void reserve(const StepLimits& limits) override {
    Wrapped::reserve(limits);
    Backend::reserve(limits);
  }
  void qkv(const QkvArgs& args) override { Backend::qkv(args); }
  void moe(const MoeArgs& args) override { Backend::moe(args); }
  void gate_up(Tensor y, Tensor x, const Weight& w_gate, const Weight& w_up, Tensor bias_gate, Tensor bias_up,
               Activation act) override {
    Backend::gate_up(y, x, w_gate, w_up, bias_gate, bias_up, act);
  }
  void matmul_add(Tensor residual, Tensor x, const Weight& w, Tensor bias) override {
    Backend::matmul_add(residual, x, w, bias);
  }
  void add_norm(Tensor out, Tensor residual, Tensor y, const NormArgs& args) override {
    Backend::add_norm(out, residual, y, args);
  }
  void norm_matmul(Tensor y, Tensor x, const NormArgs& args, const Weight& w, Tensor bias) override {
    Backend::norm_matmul(y, x, args, w, bias);
  }

 private:
  std::string inner_description() const { return Wrapped::description(); }
  void around(const char*, const Tensor&, const std::function<void()>& call) override { call(); }
};

}  // namespace

std::unique_ptr<Backend> trace_backend(std::unique_ptr<Backend> inner, std::shared_ptr<TraceFile> file) {
  return std::make_unique<Trace>(std::move(inner), std::move(file));
}
std::unique_ptr<Backend> nan_check_backend(std::unique_ptr<Backend> inner) {
  return std::make_unique<NanCheck>(std::move(inner));
}
std::unique_ptr<Backend> unfused_backend(std::unique_ptr<Backend> inner) {
  return std::make_unique<Unfused>(std::move(inner));
}

}  // namespace ingot
