// A source that passes its calls to an inner source. Subclasses override functions.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/files/weights.h"

namespace ingot {

class WrappedSource : public WeightSource {
 public:
  explicit WrappedSource(std::unique_ptr<WeightSource> inner) : inner_(std::move(inner)) {}

  std::string name() const override { return inner_->name(); }
  Dialect dialect() const override { return inner_->dialect(); }
  void release(const HostTensor& tensor) override { inner_->release(tensor); }
  size_t total_bytes() const override { return inner_->total_bytes(); }
  std::vector<std::string> unused() const override { return inner_->unused(); }
  const LoadQuantizer* quantizer() const override { return inner_->quantizer(); }
  bool find_shape(const std::string& name, int64_t n_out, int64_t n_in, HostTensor& out) override {
    return inner_->find_shape(name, n_out, n_in, out);
  }
  bool find(const std::string& name, int64_t n_out, int64_t n_in, HostTensor& out) override {
    return inner_->find(name, n_out, n_in, out);
  }

 protected:
  WeightSource& inner() { return *inner_; }
  const WeightSource& inner() const { return *inner_; }

 private:
  std::unique_ptr<WeightSource> inner_;
};

}  // namespace ingot
