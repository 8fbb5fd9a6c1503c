// Opens models that embed or rank texts.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "base/error.h"
#include "golden_models.h"
#include "model/files/checkpoint.h"
#include "model/vectors/embedder.h"

namespace ingot {

inline const fs::path kEncoders = kData / "encoders";

inline std::unique_ptr<Embedder> open_embedder(const fs::path& path,
                                               const EmbedOptions& options = {.backend = {.device = "ref"}}) {
  return Embedder::open(open_checkpoint(path.string()), options, nullptr);
}

inline std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "was accepted";
}

}  // namespace ingot
