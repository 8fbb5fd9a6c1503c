// EarModel: the ears of a text model, from a recording to the vectors that replace its audio tokens. A recording is
// filled with silence to whole windows of Whisper's encoder, 30 seconds in all published models. The windows are encoded
// one by one or, on a GPU, several at once; calls take turns.
#pragma once
#include <memory>
#include <string>

#include "backend/backend.h"
#include "base/fair_mutex.h"
#include "model/files/checkpoint.h"
#include "model/media/sense.h"

namespace ingot {

struct EarConfig;

struct EarOptions {
  BackendOptions backend;
  std::shared_ptr<const Gguf> projector;  // a GGUF file with the ears; null: those in the checkpoint's directory
  bool check_tensors = false;
};

class EarModel final : public Sense {
 public:
  // token: stands for a vector; placeholder: its text. identity: of the weights, for digests. Throws Error naming a
  // tensor that is missing or has another shape, and MemoryError if the ears do not fit.
  EarModel(const EarConfig& config, std::unique_ptr<WeightSource> source, const BackendOptions& backend,
           std::string placeholder, int32_t token, std::string identity);
  ~EarModel() override;

  const EarConfig& config() const;

  // Throws Error also for a recording without samples.
  PreparedMedia prepare(const MediaFile& file, const MediaLimits& limits, std::string_view content) const override;
  std::string prompt_text(const PreparedMedia& recording) const override;
  EncodedMedia encode(const PreparedMedia& recording) override;

 private:
  struct Parts;
  // rows: out [n_windows * window_rows, out_dim]; features: [n_windows, 2 * n_rows, n_mels]
  void encode_windows(std::span<const float> features, std::span<float> rows);

  const std::string identity_;
  std::unique_ptr<WeightSource> source_;  // the backend may read its data
  std::unique_ptr<Parts> parts_;
  FairMutex mutex_;  // of the parts
};

// The ears of a checkpoint: of its directory, or of options.projector. Null: it has none. text: the config of the text
// model. Throws Error naming the file and the key or tensor that is missing or does not fit.
std::unique_ptr<EarModel> open_ears(const Checkpoint& checkpoint, const Config& text, const Tokenizer& tokenizer,
                                    const EarOptions& options);

}  // namespace ingot
