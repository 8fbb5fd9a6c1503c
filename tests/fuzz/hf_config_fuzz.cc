// Any bytes as a config.json. The file is refused by Error, or read with every number in its promised range. Any other
// result (another exception, a sanitizer's report, a hang) is a bug.
#include "io/huggingface/config.h"
#include "io/walk.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ingot;
  try {
    const JsonDocument document = JsonDocument::parse({reinterpret_cast<const char*>(data), size}, "config.json");
    for (char c : document.root().render()) ensure(static_cast<unsigned char>(c) >= 0x20, "rendered text is printable");
    const HfConfig config = parse_hf_config(document, "fuzz");
    ensure(config.n_layers >= 1 && config.dim >= 1 && config.ffn_dim >= 1 && config.n_vocab >= 1, "sizes are positive");
    ensure(config.n_heads % config.n_kv_heads == 0 && config.head_dim >= 2 && config.head_dim <= 1024,
           "heads make sense");
    ensure(config.norm_eps > 0 && config.rope.theta > 0, "floats are positive");
    ensure(config.layer_types.empty() || config.layer_types.size() == static_cast<size_t>(config.n_layers),
           "one type a layer");
  } catch (const Error& error) {
    for (const char* c = error.what(); *c != 0; ++c)
      ensure(static_cast<unsigned char>(*c) >= 0x20, "messages are printable");
  }
  return 0;
}
