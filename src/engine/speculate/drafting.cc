#include "engine/speculate/drafting.h"

#include <algorithm>

#include "backend/device_name.h"
#include "base/error.h"
#include "model/devices/memory_plan.h"

namespace ingot {

void check_draft(const Checkpoint& draft, Speculate how, const Tokenizer& tokens) {
  const std::string name = printable(draft.path());
  if (is_eagle_head(draft)) {
    if (how != Speculate::kDraft) return;
    throw Error("{}: it is an EAGLE-3 head and not a model: speculate with eagle3", name);
  }
  if (how == Speculate::kEagle3)
    throw Error("{}: it is not an EAGLE-3 head, which has a tensor midlayer.hidden_norm.weight in safetensors files",
                name);
  const auto other = draft.tokenizer();
  if (tokens.n_vocab() != other->n_vocab())
    throw Error("{}: it has {} tokens, but the model has {}: a draft model needs the same tokens", name,
                other->n_vocab(), tokens.n_vocab());
  for (int32_t id = 0; id < tokens.n_vocab(); ++id)
    if (tokens.token_bytes(id) != other->token_bytes(id))
      throw Error("{}: its token {} is '{}', but the model's is '{}': a draft model needs the same tokens", name, id,
                  printable(other->token_bytes(id)), printable(tokens.token_bytes(id)));
}

void choose_draft_head(Speculate how, const std::shared_ptr<const Checkpoint>& draft, RunnerOptions& runner) {
  if (how == Speculate::kMtp) runner.mtp_head = MtpHead::kNeeded;
  if (how == Speculate::kAuto && !draft) runner.mtp_head = MtpHead::kIfPresent;
  if (how != Speculate::kOff && draft && is_eagle_head(*draft)) runner.eagle_head = draft;
}

std::shared_ptr<DraftModel> load_draft(const std::shared_ptr<const Checkpoint>& draft, const RunnerOptions& runner,
                                       const std::string& device) {
  constexpr uint64_t kBytesOfACache = uint64_t{2} << 20;
  if (!draft || runner.eagle_head) return nullptr;
  RunnerOptions options = runner;
  const bool is_tiny = draft->facts().file_bytes <= kBytesOfACache, is_on_gpu = is_cuda(runner.backend.device);
  if (!device.empty() || (is_tiny && is_on_gpu)) options.backend.device = device.empty() ? "cpu" : device;
  if (options.backend.device != runner.backend.device) options.backend.activations = options.backend.kernels = "";
  if (is_tiny && options.backend.device == "cpu") options.backend.n_threads = 1;  // more would wait for each other
  options.mtp_head = MtpHead::kNone;
  options.max_seqs = std::min(options.max_seqs > 0 ? options.max_seqs : kFewSequences, kFewSequences);
  options.small_pool = true;
  options.max_logits = options.spare_logits = 0;
  options.n_snapshots = options.max_seqs + 3;
  options.memory_share = 0, options.memory_bytes = 0;
  options.has_neighbours = true;               // the large model is loaded next
  options.layers_on = {}, options.split = {};  // they describe the large model
  options.parallel = {};                       // rank 0 runs the draft model alone
  return std::make_shared<DraftModel>(load_model(draft, options, [](size_t, size_t) {}).runner);
}

}  // namespace ingot
