#include "backend/cuda_library.h"

#include <algorithm>
#include <filesystem>

#include "backend/cuda/create_cuda.h"
#include "backend/device_name.h"
#include "backend/nvidia_driver.h"
#include "base/error.h"
#include "base/shared_library.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCudaLibraryName = "libingot-cuda.so";
constexpr int kMaxMissing = 4;  // NVIDIA's libraries that one library may lack

// The name at the begin of the system's message "NAME: cannot open shared object file: ..."; empty for other messages.
std::string missing_library(const std::string& fault, const std::string& file) {
  const size_t colon = fault.find(": cannot open shared object file");
  const std::string name = colon == fault.npos ? "" : fault.substr(0, colon);
  return name == file || name.find('/') != name.npos ? "" : name;
}

bool open_from(const std::vector<std::string>& folders, const std::string& name) {
  return std::ranges::any_of(folders, [&](const std::string& folder) {
    std::error_code error;
    const fs::path file = fs::path(folder) / name;
    return fs::exists(file, error) && open_library(file.string()) != nullptr;
  });
}

void forward_log(LogLevel level, const std::string& line) {
  if (detail::log_enabled(level)) detail::log_line(level, line);
}

CudaLibrary checked(void* library, const std::string& path) {
  CudaLibrary found{.entry = nullptr, .path = path, .why_none = {}};
  const auto entry = reinterpret_cast<decltype(&ingot_cuda_entry)>(function_of(library, "ingot_cuda_entry"));
  if (entry == nullptr) {
    found.why_none = fmt::format("{} is not ingot's CUDA library", printable(path));
  } else if (std::string_view(entry()->build) != kCudaBuild) {
    found.why_none = fmt::format("{} is of another build ({}; this is {}): install both from the same package",
                                 printable(path), printable(entry()->build, 100), kCudaBuild);
  } else {
    found.entry = entry();
    found.entry->log_to(forward_log);
  }
  return found;
}

}  // namespace

CudaLibrary open_cuda_library(const std::vector<std::string>& files, const std::vector<std::string>& folders) {
  std::error_code error;
  const auto file = std::ranges::find_if(files, [&](const std::string& name) { return fs::exists(name, error); });
  if (file == files.end())
    return {.entry = nullptr,
            .path = {},
            .why_none = fmt::format("this installation has no CUDA ({} is missing): install ingot's package with CUDA, "
                                    "or build it (make cuda)",
                                    kCudaLibraryName)};
  std::string fault;
  for (int i = 0; i <= kMaxMissing; ++i) {
    if (void* library = open_library(*file)) return checked(library, *file);
    fault = library_fault();
    const std::string missing = missing_library(fault, *file);
    if (missing.empty() || !open_from(folders, missing)) break;
  }
  const std::string missing = missing_library(fault, *file);
  return {.entry = nullptr,
          .path = *file,
          .why_none = missing.empty()
                          ? fmt::format("{} cannot be opened: {}", printable(*file), printable(fault, 300))
                          : fmt::format("CUDA needs {}, which is not found: install NVIDIA's CUDA, or its Python "
                                        "packages (pip install nvidia-cublas nvidia-cuda-nvrtc)",
                                        printable(missing, 100))};
}

std::vector<std::string> cuda_library_files() {
  const fs::path folder = folder_of_this_code();
  std::vector<std::string> files;
  for (const fs::path& place :
       {folder, folder / "../lib/ingot", folder / "ingot", folder / "../ingot", folder / "../lib"})
    files.push_back((place / kCudaLibraryName).lexically_normal().string());
  return files;
}

std::vector<std::string> nvidia_folders() {
  std::vector<std::string> folders = {"/usr/local/cuda/lib64", "/usr/local/cuda-13/lib64", "/usr/local/cuda-12/lib64",
                                      "/opt/cuda/lib64", "/usr/lib/wsl/lib"};
  const fs::path packages = fs::path(folder_of_this_code()) / "../..";  // of a wheel: site-packages
  for (const char* package : {"nvidia/cu13/lib", "nvidia/cublas/lib", "nvidia/cuda_nvrtc/lib"})
    folders.push_back((packages / package).lexically_normal().string());
  return folders;
}

const CudaLibrary& cuda_library() {
  static const CudaLibrary library = [] {
    const NvidiaDriver driver = read_nvidia_driver();
    if (!driver.why_none.empty())
      return CudaLibrary{.entry = nullptr, .path = {}, .why_none = "no CUDA device: " + driver.why_none};
    return open_cuda_library(cuda_library_files(), nvidia_folders());
  }();
  return library;
}

std::unique_ptr<Backend> create_cuda_backend(const BackendOptions& options) {
  cuda_index(options.device);
  if (const std::string why = why_no_cuda(); !why.empty()) throw UsageError("{}; use the device cpu", why);
  return cuda_library().entry->create(options);
}

std::string why_no_cuda() {
  const CudaLibrary& library = cuda_library();
  return library.entry == nullptr ? library.why_none : library.entry->why_none();
}

namespace cuda {

void fail_allocation(int n) {
  if (const CudaEntry* entry = cuda_library().entry) entry->fail_allocation(n);
}
int allocations_left() {
  const CudaEntry* entry = cuda_library().entry;
  return entry == nullptr ? -1 : entry->allocations_left();
}
void fail_recordings(int n) {
  if (const CudaEntry* entry = cuda_library().entry) entry->fail_recordings(n);
}
int failing_recordings() {
  const CudaEntry* entry = cuda_library().entry;
  return entry == nullptr ? 0 : entry->failing_recordings();
}
void pretend_card(int major, int minor, size_t shared_bytes) {
  if (const CudaEntry* entry = cuda_library().entry) entry->pretend_card(major, minor, shared_bytes);
}

}  // namespace cuda
}  // namespace ingot
