// Loading a model for the C API: options, devices, the draft model.
#include <fmt/ranges.h>

#include <algorithm>

#include "backend/device_name.h"
#include "base/error.h"
#include "base/threads.h"
#include "capi/capi_guard.h"
#include "capi/capi_request.h"
#include "ingot/ingot.h"
#include "model/devices/device_spread.h"

namespace ingot {
namespace {

void check_options(const ingot_model_options& o) {
  check_range("n_threads", o.n_threads, 0, kMaxThreads);
  check_range("n_ctx", o.n_ctx, 0, 1 << 24);
  check_range("max_seqs", o.max_seqs, 1, 1 << 12);
  check_range("max_batch_tokens", o.max_batch_tokens, 0, 1 << 16);
  check_range("n_kv_tokens", o.n_kv_tokens, 0, 1 << 30);
  check_range("max_queue", o.max_queue, 0, INT32_MAX);
  check_range("tp", o.tp, 1, 64);
  check_range("pp", o.pp, 1, 64);
  check_range("gpu_layers", o.gpu_layers, -1, INT32_MAX);
  if (!(o.gpu_memory == 0 || (o.gpu_memory > 0 && o.gpu_memory <= 1) ||
        (o.gpu_memory >= 1 << 20 && o.gpu_memory < 0x1p60)))
    throw Error("gpu_memory is {}: it must be a share of the memory, above 0 and at most 1, or bytes from 2^20 on",
                o.gpu_memory);
}

Speculate speculate_of(const ingot_model_options& o) {
  const std::string how = o.speculate != nullptr ? o.speculate : "off";
  const std::optional<Speculate> speculate = find_speculate(how);
  if (!speculate) throw Error("speculate is '{}': expected {}", printable(how), fmt::join(kSpeculateNames, ", "));
  if (o.draft == nullptr && (speculate == Speculate::kDraft || speculate == Speculate::kEagle3))
    throw Error("speculate is '{}', which needs a model that guesses: set draft to its path", how);
  return *speculate;
}

void place(const ingot_model_options& o, RunnerOptions& runner) {
  const std::string device = o.device != nullptr ? o.device : "cpu";
  spread_over_devices(device, o.tp, o.pp, runner);
  const bool is_gpu = is_cuda(device.substr(0, device.find(',')));
  if (o.gpu_memory > 0 && !is_gpu) throw Error("gpu_memory needs a GPU, and device is '{}'", printable(device));
  if (o.gpu_layers >= 0 && !is_gpu) throw Error("gpu_layers needs a GPU, and device is '{}'", printable(device));
  if (o.gpu_layers >= 0 && o.tp > 1)
    throw Error("tp gives each device a share of every layer: leave out gpu_layers, or set tp to 1");
  if (o.gpu_layers == 0) runner.backend.device = "cpu";
  if (o.gpu_layers > 0) runner.layers_on.gpu_layers = o.gpu_layers;
  if (o.gpu_memory > 0 && o.gpu_memory <= 1) runner.memory_share = o.gpu_memory;
  if (o.gpu_memory > 1) runner.memory_bytes = static_cast<size_t>(o.gpu_memory);
}

int batch_of(const ingot_model_options& o) {
  return o.max_batch_tokens > 0 ? std::max(o.max_batch_tokens, o.max_seqs) : 0;
}

RunnerOptions runner_of(const ingot_model_options& o) {
  RunnerOptions runner{
      .backend = {.n_threads = o.n_threads, .small_weights = true, .deterministic = o.deterministic != 0},
      .n_ctx = o.n_ctx,
      .max_batch_tokens = batch_of(o),
      .max_seqs = o.max_seqs,
      .spare_logits = kScoredRows,
      .n_kv_tokens = o.n_kv_tokens,
      .kv_dtype = o.kv_type != nullptr ? parse_kv_type(o.kv_type) : KvTypes(),
      .n_snapshots = -1,
      .has_neighbours = true,  // the host may load other models
      .quantize = o.quantize != nullptr ? o.quantize : ""};
  place(o, runner);
  return runner;
}

LoadProgress progress_of(const ingot_model_options& o) {
  if (o.progress == nullptr) return nullptr;
  return [call = o.progress, user = o.progress_user](size_t done, size_t total) { call(done, total, user); };
}

}  // namespace
}  // namespace ingot

using namespace ingot;

extern "C" {

void ingot_model_options_init_sized(ingot_model_options* options, size_t size) {
  init_options(options, size, {.max_seqs = 8, .tp = 1, .pp = 1, .gpu_layers = -1});
}

ingot_status ingot_load(const char* path, const ingot_model_options* given, ingot_model** model) {
  return guarded([&] {
    required(model, "model") = nullptr;
    const ingot_model_options o = options_of(given, ingot_model_options_init);
    const std::string name = &required(path, "path");
    check_options(o);
    const Speculate speculate = speculate_of(o);
    RunnerOptions runner = runner_of(o);
    const auto checkpoint = open_checkpoint(name);
    const auto draft = o.draft != nullptr ? open_checkpoint(o.draft) : nullptr;
    if (draft) check_draft(*draft, speculate, *checkpoint->tokenizer());
    choose_draft_head(speculate, draft, runner);
    if (o.no_images != 0 && o.mmproj != nullptr) throw Error("no_images and mmproj exclude each other");
    std::optional<VisionOptions> vision;
    if (o.no_images == 0) vision = vision_options(*checkpoint, runner, o.mmproj != nullptr ? o.mmproj : "");
    LoadedModel loaded = load_model(checkpoint, runner, progress_of(o), vision);
    if (o.chat_template != nullptr) use_chat_template(loaded, o.chat_template);
    auto result = std::make_unique<ingot_model>();
    result->shared = std::make_shared<CapiModel>(std::move(loaded),
                                                 EngineOptions{.chunk = batch_of(o), .max_queue = o.max_queue},
                                                 speculate, load_draft(draft, runner));
    *model = result.release();
    return INGOT_OK;
  });
}

}  // extern "C"
