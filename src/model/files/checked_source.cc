// A source that reads every number of a tensor before find() returns, for files whose data may be damaged although all
// sizes are right.
#include <cmath>

#include "base/error.h"
#include "model/files/wrapped_source.h"

namespace ingot {
namespace {

class CheckedSource final : public WrappedSource {
 public:
  using WrappedSource::WrappedSource;

  std::unique_ptr<WeightSource> again() const override { return checked_source(inner().again()); }

  bool find(const std::string& name, int64_t n_out, int64_t n_in, HostTensor& out) override {
    if (!inner().find(name, n_out, n_in, out)) return false;
    if (out.n_out != n_out || out.n_in != n_in) return true;  // the caller refuses the shape
    std::vector<float> row(out.n_in);
    for (int64_t i = 0; i < out.n_out; ++i) {
      decode_row(out.format, out.data + i * row_bytes(out.format, out.n_in), row.data(), out.n_in);
      for (int64_t j = 0; j < out.n_in; ++j)
        if (!std::isfinite(row[j]))
          throw Error(
              "{}: tensor '{}' has {} at row {}, column {}: the file is damaged or badly converted: download it again",
              this->name(), printable(name), row[j], i, j);
    }
    return true;
  }
};

}  // namespace

std::unique_ptr<WeightSource> checked_source(std::unique_ptr<WeightSource> source) {
  return std::make_unique<CheckedSource>(std::move(source));
}

}  // namespace ingot
