// SharedFloats: floats in host memory that several owners share.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace ingot {

class SharedFloats {
 public:
  SharedFloats() = default;
  SharedFloats(std::shared_ptr<const float[]> values, size_t n) : values_(std::move(values)), n_(n) {}
  explicit SharedFloats(std::vector<float> values) : n_(values.size()) {
    const auto kept = std::make_shared<const std::vector<float>>(std::move(values));
    values_ = {kept, kept->data()};
  }
  size_t size() const { return n_; }
  std::span<const float> all() const { return {values_.get(), n_}; }
  // n floats from `first` on; share_of: as another owner
  std::span<const float> part(size_t first, size_t n) const { return all().subspan(first, n); }
  SharedFloats share_of(size_t first, size_t n) const { return {{values_, part(first, n).data()}, n}; }

 private:
  std::shared_ptr<const float[]> values_;
  size_t n_ = 0;
};

}  // namespace ingot
