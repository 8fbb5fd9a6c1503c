// NVRTC, NVIDIA's compiler as a library. The library is opened at run time, so a machine without it lacks only the
// features that need it. NVRTC compiles kernel sources that are embedded in this program (cmake/cuda.cmake), and reads
// no file of the toolkit.
#pragma once
#include <string>
#include <vector>

namespace ingot::cuda {

class Nvrtc {
 public:
  // Null if this machine has no NVRTC.
  static const Nvrtc* get();

  const std::string& version() const { return version_; }  // "13.0"

  // Compiles `source` to machine code for an architecture such as "sm_90a". `source` may include the files listed in
  // cuda.cmake. Any thread may call this function. Throws Error with the compiler's message.
  std::vector<char> compile(const std::string& source, const std::string& arch) const;

  // Describes everything besides the source on which the machine code depends; part of the key of a cached copy.
  std::string made_with(const std::string& arch) const;

  struct Functions;

 private:
  Nvrtc(const Functions& functions, std::string version) : functions_(functions), version_(std::move(version)) {}

  const Functions& functions_;
  std::string version_;
};

}  // namespace ingot::cuda
