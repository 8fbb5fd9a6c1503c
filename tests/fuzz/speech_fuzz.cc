// Any bytes as a recording, as a file of CTranslate2 or whisper.cpp, or as a form. The first byte chooses. The input is
// refused by Error, or read with the promises kept on which users rely.
#include <cmath>

#include "io/audio/decode.h"
#include "io/ctranslate2/model_bin.h"
#include "io/ggml/speech_file.h"
#include "io/multipart.h"
#include "io/rank_merges.h"
#include "io/walk.h"

namespace ingot {
namespace {

bool is_inside(std::span<const uint8_t> part, std::span<const uint8_t> whole) {
  return part.empty() || (part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size());
}

void fuzz_audio(std::span<const uint8_t> bytes) {
  const AudioLimits limits{.max_bytes = 1 << 20, .max_seconds = 20};
  const auto audio = open_audio(std::as_bytes(bytes), limits);
  std::vector<float> samples(5000);
  size_t total = 0;
  while (const size_t n = audio->read(samples)) {
    ensure(n <= samples.size(), "no more samples than wanted");
    for (size_t i = 0; i < n; ++i) ensure(std::isfinite(samples[i]), "samples are finite");
    total += n;
    ensure(total <= 20 * kSpeechRate, "a recording keeps to the limit");
  }
}

void fuzz_ct2(std::span<const uint8_t> bytes) {
  const Ct2Model model = Ct2Model::parse(bytes, "m.bin");
  for (const Ct2Variable& v : model.variables()) {
    ensure(is_inside(v.data, bytes) && !v.data.empty(), "data is inside the file");
    ensure(model.find(v.name) == &v && v.n_elements() > 0, "each variable is found");
    v.integer();
  }
}

void fuzz_ggml(std::span<const uint8_t> bytes) {
  const GgmlSpeechFile file = GgmlSpeechFile::parse(bytes, "m.bin");
  for (const GgmlTensor& t : file.tensors()) {
    int64_t n = 1;
    for (const int64_t size : t.shape) n *= size;
    ensure(is_inside(t.data, bytes) && n > 0, "data is inside the file");
    ensure(t.data.size() == static_cast<size_t>(n / t.shape.back()) * row_bytes(t.format, t.shape.back()),
           "data is whole");
    ensure(file.find(t.name) == &t, "each tensor is found");
  }
}

void fuzz_form(std::span<const uint8_t> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const size_t line = std::min(text.find('\n'), text.size());
  const std::string_view body = text.substr(std::min(line + 1, text.size()));
  for (const FormPart& part : read_form_data(text.substr(0, line), body))
    ensure(part.data.empty() ||
               (part.data.data() >= body.data() && part.data.data() + part.data.size() <= body.data() + body.size()),
           "parts are inside the body");
}

}  // namespace
}  // namespace ingot

// libsndfile and the codecs that it brings do not free everything that a damaged file has made them take.
extern "C" const char* __lsan_default_suppressions() { return "leak:libsndfile\nleak:libvorbis\nleak:libopus\n"; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ingot;
  if (size == 0) return 0;
  constexpr void (*kReaders[])(std::span<const uint8_t>) = {fuzz_audio, fuzz_ct2, fuzz_ggml, fuzz_form};
  try {
    kReaders[data[0] % std::size(kReaders)]({data + 1, size - 1});
  } catch (const Error& error) {
    for (const char* c = error.what(); *c != 0; ++c)
      ensure(static_cast<unsigned char>(*c) >= 0x20, "messages are printable");
  }
  return 0;
}
