// HostRows: tensors as code of the host sees them, in f32. On backends of host memory they are the tensors themselves.
// On a device they are copies: read when asked for, and written back when this object goes.
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
  ~HostRows() noexcept(false);  // throws what upload throws

  Tensor in(const Tensor& t);     // is read
  Tensor out(const Tensor& t);    // is written, every element of it
  Tensor inout(const Tensor& t);  // both

 private:
  struct Copy {
    Tensor device;
    std::vector<char> bytes;  // [rows, cols] in f32, or in i32
    bool is_written;
  };
  Tensor copy_of(const Tensor& t, bool is_read, bool is_written);

  Backend& backend_;
  std::deque<Copy> copies_;
};

}  // namespace ingot
