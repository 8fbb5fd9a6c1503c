// Opens a model with an installed ingot and says what it is.
#include <cstdio>

#include "io/gguf/gguf.h"
#include "model/config.h"

int main(int, char** argv) {
  const ingot::Gguf file = ingot::Gguf::open(argv[1]);
  const ingot::Config config = ingot::config_from_gguf(file);
  std::printf("%s: %d layers, %zu tensors\n", config.arch->gguf_name, config.n_layers, file.tensors().size());
}
