// Any bytes as a model file. The file is refused by Error, or accepted with all promises kept; an accepted file can be
// written again. Any other result (another exception, a sanitizer's report, a hang) is a bug.
#include <algorithm>

#include "io/gguf/writer.h"
#include "io/walk.h"

namespace ingot {
namespace {

std::vector<uint8_t> rewrite(const Gguf& model) {
  GgufWriter writer(model.version());
  for (const Metadata::Entry& entry : model.metadata().entries()) writer.set(entry.key, entry.value);
  writer.set("general.alignment", model.alignment());
  for (const TensorInfo& tensor : model.tensors()) {
    const auto data = model.data(tensor);
    writer.add_tensor(tensor.name, tensor.ggml_type, {tensor.dims().begin(), tensor.dims().end()},
                      {data.begin(), data.end()});
  }
  return writer.to_bytes();
}

void check_same(const Gguf& a, const Gguf& b) {
  for (const Metadata::Entry& entry : a.metadata().entries()) {
    const Value* other = b.metadata().find(entry.key);
    ensure(other != nullptr && other->type_name() == entry.value.type_name(), "a key keeps its type");
    ensure(std::ranges::equal(other->bytes, entry.value.bytes), "a key keeps its value");
  }
  ensure(a.tensors().size() == b.tensors().size(), "no tensor is lost");
  for (const TensorInfo& tensor : a.tensors()) {
    const TensorInfo* other = b.find(tensor.name);
    ensure(other != nullptr && other->shape == tensor.shape, "a tensor keeps its shape");
    ensure(std::ranges::equal(a.data(tensor), b.data(*other)), "a tensor keeps its data");
  }
}

}  // namespace
}  // namespace ingot

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ingot;
  std::optional<Gguf> model;
  try {
    model.emplace(Gguf::parse({data, size}, "fuzz.gguf"));
  } catch (const Error& error) {
    for (const char* c = error.what(); *c != 0; ++c)
      ensure(static_cast<unsigned char>(*c) >= 0x20, "messages are printable");
    return 0;
  }
  walk(*model);
  if (model->alignment() > 4096) return 0;  // writing that much padding is slow
  const std::vector<uint8_t> again = rewrite(*model);
  check_same(*model, Gguf::parse(again, "again.gguf"));
  return 0;
}
