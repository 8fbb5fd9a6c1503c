// NVRTC, NVIDIA's compiler as a library, opened when the program runs, so that a machine without it misses nothing but
// what needs it. It reads this program's own sources of kernels, which are part of the program (cmake/cuda.cmake), and
// no file of the toolkit.
#pragma once
#include <string>
#include <vector>

namespace ingot::cuda {

class Nvrtc {
 public:
  // Null where this machine has none.
  static const Nvrtc* get();

  const std::string& version() const { return version_; }  // "13.0"

  // Machine code of `source`, which may include what is listed in cuda.cmake, for an architecture such as "sm_90a". Any
  // thread may call it. Throws Error with what the compiler says.
  std::vector<char> compile(const std::string& source, const std::string& arch) const;

  // All that the machine code is made of besides, for the name of a copy that is kept.
  std::string made_with(const std::string& arch) const;

  struct Functions;

 private:
  Nvrtc(const Functions& functions, std::string version) : functions_(functions), version_(std::move(version)) {}

  const Functions& functions_;
  std::string version_;
};

}  // namespace ingot::cuda
