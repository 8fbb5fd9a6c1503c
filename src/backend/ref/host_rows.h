// HostRows: gives host code access to tensors, in f32. If the backend's memory is host memory, the results are the
// tensors themselves. On a device they are copies: a copy is read when requested, and written back when this object is
// destroyed.
#pragma once
#include <deque>
#include <vector>

#include "backend/backend.h"

namespace ingot {

class HostRows {
 public:
  explicit HostRows(Backend& backend) : backend_(backend) {}
  HostRows(const HostRows&) = delete;
  HostRows& operator=(const HostRows&) = delete;
  ~HostRows() noexcept(false);  // throws the exceptions of upload

  Tensor in(const Tensor& t);     // for a tensor that is only read
  Tensor out(const Tensor& t);    // for a tensor whose elements are all written
  Tensor inout(const Tensor& t);  // for a tensor that is read and written

 private:
  struct Copy {
    Tensor device;
    std::vector<char> bytes;  // [rows, cols] of f32 or i32
    bool is_written;
  };
  Tensor copy_of(const Tensor& t, bool is_read, bool is_written);

  Backend& backend_;
  std::deque<Copy> copies_;
};

}  // namespace ingot
