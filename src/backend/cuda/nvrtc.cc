#include "backend/cuda/nvrtc.h"

#include <nvrtc.h>

#include <array>
#include <memory>
#include <string_view>
#include <utility>

#include "backend/cuda/rtc_sources.h"
#include "backend/cuda_library.h"
#include "base/error.h"
#include "base/log.h"
#include "base/shared_library.h"

namespace ingot::cuda {

struct Nvrtc::Functions {
  decltype(&nvrtcVersion) version = nullptr;
  decltype(&nvrtcCreateProgram) create = nullptr;
  decltype(&nvrtcDestroyProgram) destroy = nullptr;
  decltype(&nvrtcCompileProgram) compile = nullptr;
  decltype(&nvrtcGetCUBINSize) cubin_size = nullptr;
  decltype(&nvrtcGetCUBIN) cubin = nullptr;
  decltype(&nvrtcGetProgramLogSize) log_size = nullptr;
  decltype(&nvrtcGetProgramLog) log = nullptr;
  decltype(&nvrtcGetErrorString) error = nullptr;
};

namespace {

// NVRTC has no C++ library headers. These types equal nvcc's, so kernel parameters have the same layout.
constexpr std::pair<const char*, const char*> kSystemHeaders[] = {
    {"cstdint",
     "#pragma once\n"
     "typedef signed char int8_t;\ntypedef unsigned char uint8_t;\ntypedef short int16_t;\ntypedef unsigned short "
     "uint16_t;\n"
     "typedef int int32_t;\ntypedef unsigned int uint32_t;\ntypedef long int64_t;\ntypedef unsigned long uint64_t;\n"
     "typedef unsigned long uintptr_t;\n"},
    {"cstring", ""},
    {"cuda.h", "#pragma once\nstruct alignas(64) CUtensorMap {\n  unsigned long opaque[16];\n};\n"},
};

void* open_nvrtc() {
  std::vector<std::string> folders = nvidia_folders();
  folders.insert(folders.begin(), INGOT_NVRTC_FOLDER);  // of the toolkit with which the library was built
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12"}) {
    if (void* library = open_library(name)) return library;
    for (const std::string& folder : folders)
      if (void* library = open_library(folder + "/" + name)) return library;
  }
  return nullptr;
}

template <class F>
bool find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(function_of(library, name));
  return function != nullptr;
}

bool find_all(void* library, Nvrtc::Functions& f) {
  return find(library, "nvrtcVersion", f.version) && find(library, "nvrtcCreateProgram", f.create) &&
         find(library, "nvrtcDestroyProgram", f.destroy) && find(library, "nvrtcCompileProgram", f.compile) &&
         find(library, "nvrtcGetCUBINSize", f.cubin_size) && find(library, "nvrtcGetCUBIN", f.cubin) &&
         find(library, "nvrtcGetProgramLogSize", f.log_size) && find(library, "nvrtcGetProgramLog", f.log) &&
         find(library, "nvrtcGetErrorString", f.error);
}

std::string_view source_text(const EmbeddedSource& source) {
  return {source.begin, static_cast<size_t>(source.end - source.begin)};
}

std::array<std::string, 3> options_for(const std::string& arch) {
  return {"--gpu-architecture=" + arch, "--std=c++20", "--device-as-default-execution-space"};
}

// The embedded headers, as zero-terminated text.
struct Headers {
  std::vector<const char*> names, texts;
  std::vector<std::string> own;

  Headers() {
    for (const auto& [name, text] : kSystemHeaders) names.push_back(name), texts.push_back(text);
    for (const EmbeddedSource& source : kEmbeddedSources) own.emplace_back(source_text(source));
    for (size_t i = 0; i < own.size(); ++i) names.push_back(kEmbeddedSources[i].name), texts.push_back(own[i].c_str());
  }
};

}  // namespace

const Nvrtc* Nvrtc::get() {
  static const Nvrtc* const one = []() -> const Nvrtc* {
    static Functions functions;
    void* library = open_nvrtc();
    if (library == nullptr || !find_all(library, functions)) return nullptr;
    int major = 0, minor = 0;
    if (functions.version(&major, &minor) != NVRTC_SUCCESS) return nullptr;
    return new Nvrtc(functions, fmt::format("{}.{}", major, minor));
  }();
  return one;
}

std::string Nvrtc::made_with(const std::string& arch) const {
  std::string all = "nvrtc " + version_;
  for (const std::string& option : options_for(arch)) all += " " + option;
  for (const auto& [name, text] : kSystemHeaders) all += fmt::format("\n{}\n{}", name, text);
  for (const EmbeddedSource& source : kEmbeddedSources)
    all += fmt::format("\n{}\n{}", source.name, source_text(source));
  return all;
}

std::vector<char> Nvrtc::compile(const std::string& source, const std::string& arch) const {
  static const Headers& headers = *new Headers;  // never freed: the program may end while a thread compiles
  const Functions& f = functions_;
  const auto check = [&](nvrtcResult result, const char* call) {
    if (result != NVRTC_SUCCESS) throw Error("NVRTC {}: {} failed: {}", version_, call, f.error(result));
  };
  nvrtcProgram program = nullptr;
  check(f.create(&program, source.c_str(), "specialised.cu", static_cast<int>(headers.names.size()),
                 headers.texts.data(), headers.names.data()),
        "nvrtcCreateProgram");
  const auto destroy = [&](nvrtcProgram* p) { f.destroy(p); };
  const std::unique_ptr<nvrtcProgram, decltype(destroy)> owner(&program, destroy);
  const auto options = options_for(arch);
  const char* const arguments[] = {options[0].c_str(), options[1].c_str(), options[2].c_str()};
  const nvrtcResult result = f.compile(program, static_cast<int>(std::size(arguments)), arguments);
  size_t size = 0;
  if (result != NVRTC_SUCCESS) {
    check(f.log_size(program, &size), "nvrtcGetProgramLogSize");
    std::string log(size, ' ');
    check(f.log(program, log.data()), "nvrtcGetProgramLog");
    throw Error("NVRTC {} cannot compile a kernel for {}: {}\n{}", version_, arch, f.error(result), log.c_str());
  }
  check(f.cubin_size(program, &size), "nvrtcGetCUBINSize");
  std::vector<char> code(size);
  check(f.cubin(program, code.data()), "nvrtcGetCUBIN");
  return code;
}

}  // namespace ingot::cuda
