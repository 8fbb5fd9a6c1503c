#include "model/devices/ranks.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "backend/blocks/remote.h"
#include "backend/recorded_steps.h"
#include "backend/trace.h"
#include "base/device_lost.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory_error.h"
#include "base/system.h"
#include "base/threads.h"
#include "model/config/layer_inputs.h"
#include "model/devices/batch_message.h"
#include "model/devices/remote_stages.h"
#include "model/program/kv_caches.h"

namespace ingot {
namespace {

// ranks: those that share the device's steps; null: none.
std::unique_ptr<Backend> make_backend(const RunnerOptions& options, const std::string& device,
                                      const std::shared_ptr<Communicator>& ranks) {
  BackendOptions of_device = options.backend;
  of_device.device = device;
  std::unique_ptr<Backend> backend = create_backend(of_device);
  if (auto* recorded = dynamic_cast<RecordedSteps*>(backend.get())) {
    if (options.check_replay) recorded->check_replays();
    if (options.trace && !options.trace_ops) recorded->trace_steps(options.trace);
  }
  if (ranks) backend->connect(ranks);
  if (options.check_nan) backend = nan_check_backend(std::move(backend));
  if (options.trace && options.trace_ops) {
    const int rank = ranks ? ranks->rank() : 0;
    backend = trace_backend(std::move(backend), options.trace, rank == 0 ? "ops" : fmt::format("ops of rank {}", rank));
  }
  check_kv_types(*backend, options.kv_dtype);
  return backend;
}

// "a,b" as {"a", "b"}.
std::vector<std::string> names_in(const std::string& list) {
  std::vector<std::string> names;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    names.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

// A draft head runs only with a model on one device, because several ranks or devices would have to share the head. A
// head that the options do not name is left out if its tensors are not as expected.
DraftHeadFile open_head(WeightSource& source, const Config& config, const RunnerOptions& options) {
  const bool is_alone = !options.parallel.communicator && !options.layers_on.asks() && options.split.device.empty() &&
                        names_in(options.backend.device).size() == 1;
  const bool is_asked_for = options.eagle_head != nullptr || options.mtp_head == MtpHead::kNeeded;
  if (!is_alone && is_asked_for)
    throw UsageError("a draft head needs a model on one device: with several devices, speculate with ngram or draft");
  if (options.eagle_head) return open_eagle_head(*options.eagle_head, config);
  if (options.mtp_head == MtpHead::kNone || !is_alone) return {};
  DraftHeadFile head = find_mtp_head(source, config);
  if (!head && options.mtp_head == MtpHead::kNeeded)
    throw Error("{}: the model has no layer for multi-token prediction (MTP): speculate in another way, or not at all",
                source.name());
  try {
    if (head) head_bytes(head, *create_backend({.device = "ref"}));
  } catch (const Error& error) {
    if (options.mtp_head == MtpHead::kNeeded) throw;
    log_warn("the model's layer for multi-token prediction is not used: {}", error.what());
    return {};
  }
  return head;
}

std::vector<KvPool> pools_of(const Config& config, const MemoryPlan& plan) {
  std::vector<KvPool> pools;
  for (const KvCacheKind& kind : kv_caches(config))
    if (!kind.of_source) pools.push_back({.n_blocks = plan.kv[pools.size()].n_blocks, .window = kind.window});
  return pools;
}

Config with_head(Config config, const DraftHeadFile& head) {
  config.draft_head = head.config;
  return config;
}

}  // namespace

Ranks::Ranks(const Config& config, std::unique_ptr<WeightSource> source, RunnerOptions options,
             const LoadProgress& progress)
    : source_(options.check_tensors ? checked_source(std::move(source)) : std::move(source)),
      head_file_(open_head(*source_, config, options)),
      config_(with_head(config, head_file_)),
      parallel_(options.parallel),
      communicator_(parallel_.communicator) {
  const bool chooses = options.max_seqs == 0;
  if (chooses) options.max_seqs = kFewSequences;  // while the devices are chosen
  open_devices(options);
  make_first_plan(options, chooses);
  if (options.n_ctx > config_.n_ctx_train)
    log_warn("a context of {} tokens is more than the {} that the model was trained for", options.n_ctx,
             config_.n_ctx_train);
  load(progress);
  options.max_seqs = plan_.max_seqs;  // the ranks' number
  if (options.fills_memory() || n_parts() > 1) make_plan(options, true);
  log_info("memory:\n{}", plan_.table());
  make_programs();
  is_pipeline() ? start_pipeline() : link_runs();
  const Backend& backend = *head().backend;
  info_ = {.n_vocab = config_.n_vocab,
           .n_ctx = plan_.n_ctx,
           .block_size = options.block_size,
           .pools = pools_of(config_, plan_),
           .max_batch_tokens = plan_.max_batch_tokens,
           .max_seqs = plan_.max_seqs,
           .max_logits = plan_.limits.max_logits,
           .n_states = plan_.states.n_slots,
           .takes_embeddings = config_.part<LayerInputsConfig>().width == 0 ||  // these need the tokens' ids
                               config_.image_row_token >= 0,
           .embedding_dim = config_.dim * (1 + config_.n_deepstack),
           .embedding_token = config_.image_row_token,
           .source = {config_.source_dim, config_.max_source_rows, plan_.kv.back().n_blocks},
           .n_rope_axes = config_.rope_axes.empty() ? 1 : kRopeAxes,
           .overlaps = pipeline_ || (backend.overlaps() && devices_.size() == 1),
           .n_stages = pipeline_ ? pipeline_->n_in_flight() : 1,
           .draft_head = !head_file_                   ? DraftHeadKind::kNone
                         : head_file_.config->is_eagle ? DraftHeadKind::kEagle3
                                                       : DraftHeadKind::kMtp};
  if (communicator_) await_all(*communicator_);
}

void Ranks::open_device(const std::string& name, const RunnerOptions& options) {
  const bool is_known = std::ranges::any_of(devices_, [&](const auto& other) { return other->name == name; });
  devices_.push_back(std::make_unique<Device>());
  Device& device = *devices_.back();
  const auto& of_devices = parallel_.of_devices;
  const size_t i = devices_.size() - 1;
  const auto& ranks = i < of_devices.size() ? of_devices[i] : communicator_;
  device.take(make_backend(options, name, config_.share || has_remote_stages() ? ranks : nullptr));
  device.name = name == "auto" ? device.backend->name() : name;
  if (is_known) device.name += fmt::format(" ({})", devices_.size());  // only the CPU may be listed twice
}

// Opens the devices that the options name, and the CPU if it runs the rest of the model. CPU devices share the cores,
// because they may work at the same time.
void Ranks::open_devices(RunnerOptions& options) {
  const std::vector<std::string> names = names_in(options.backend.device);
  RunnerOptions of_each = options;
  if (const auto n_hosts = static_cast<int>(std::ranges::count(names, "cpu")); n_hosts > 1) {
    const int n_threads = options.backend.n_threads > 0 ? options.backend.n_threads : default_threads();
    of_each.backend.n_threads = std::max(1, n_threads / n_hosts);
  }
  for (const std::string& name : names) open_device(name, of_each);
  for (const auto& device : devices_)
    if (!device->backend->is_host())
      choose_copies(config_, *source_, *device->backend, memory_limit(*device, options), devices_.size(), options);
  // A replay and the launches after it would both change the rows and the states of the other devices.
  const auto refuse_replays = [&] {
    if (options.check_replay && n_parts() > 1)
      throw UsageError("replayed steps can be checked only with a model on one device, but this model is on {} devices",
                       n_parts());
  };
  if (has_remote_stages()) return refuse_replays(), take_stage(options);
  const size_t n_named = devices_.size();
  split_ = communicator_ && n_named == 1 ? Split(config_) : options.split;
  if (split_.device.empty()) {
    const auto memory_of = [&](const Device& device) {
      return DeviceMemory{
          .name = device.name, .backend = device.backend.get(), .available = memory_limit(device, options)};
    };
    std::vector<DeviceMemory> named;
    for (const auto& device : devices_) named.push_back(memory_of(*device));
    const auto host = [&] {
      if (devices_.size() == n_named) open_device("cpu", options);
      return memory_of(*devices_.back());
    };
    const auto choose = [&] { return choose_split(config_, *source_, named, host, options); };
    try {
      split_ = choose();
    } catch (const MemoryError&) {
      if (!save_memory(options)) throw;
      split_ = choose();
    }
  }
  if (communicator_ && n_named > 1) agree_on_split();
  if (devices_.size() > n_named && !split_.uses(static_cast<int>(n_named))) devices_.pop_back();
  if (devices_.size() > n_named && options.max_batch_tokens == 0)  // a larger step would leave less memory
    options.max_batch_tokens = std::max(kSplitChunk, options.max_seqs);
  refuse_replays();
  CHECK_LE(split_.n_devices(), static_cast<int>(devices_.size()));
  if (head_file_ && devices_.size() > 1) drop_head(options);
}

// Lets the host pack weights as small as in the file. False if they do not become smaller. Ranks plan on their own, and
// must pack alike, so with several ranks only the user can ask for small weights.
bool Ranks::save_memory(const RunnerOptions& options) {
  if (!options.may_save_memory || communicator_) return false;
  const auto host = std::ranges::find_if(devices_, [](const auto& d) { return d->backend->is_host(); });
  if (host == devices_.end()) return false;
  const auto bytes = [&] { return weight_bytes(*source_, config_, *(*host)->backend).total(); };
  const size_t before = bytes();
  if (!(*host)->backend->save_memory() || bytes() >= before) return false;
  log_warn("memory is short: the weights stay as small as in the file ({}, not {}), which makes products slower",
           human_bytes(bytes()), human_bytes(before));
  return true;
}

// Ranks see different amounts of free memory. The split of rank 0 is used.
void Ranks::agree_on_split() {
  std::vector<int> all(split_.device.size() * static_cast<size_t>(communicator_->size()));
  communicator_->exchange(all.data(), split_.device.data(), split_.device.size() * sizeof(int));
  all.resize(split_.device.size());
  split_.device = all;
}

// The blocks of this process. Rank 0 chooses the stages by the memory that all ranks have free.
void Ranks::take_stage(const RunnerOptions& options) {
  const int n_stages = parallel_.n_stages, n_of_stage = parallel_.n_of_stage();
  const Backend* like = devices_[0]->backend.get();  // all ranks have devices of one kind
  const size_t own = memory_limit(*devices_[0], options);
  std::vector<size_t> free(static_cast<size_t>(communicator_->size()));
  communicator_->exchange(free.data(), &own, sizeof(own));
  split_ = Split(config_);
  if (communicator_->rank() == 0) {
    std::vector<DeviceMemory> stages;
    for (int s = 0; s < n_stages; ++s) {
      const auto first = free.begin() + s * n_of_stage;
      stages.push_back({.name = rank_name(s * n_of_stage, communicator_->size()),
                        .backend = like,
                        .available = *std::min_element(first, first + n_of_stage)});
    }
    const auto no_host = [&] { return DeviceMemory{.name = "no other device", .backend = like, .available = 0}; };
    split_ = choose_split(config_, *source_, stages, no_host, options);
    for (int s = 0; s < n_stages; ++s)
      if (!split_.uses(s))
        throw Error("stage {} of {} would have no layer of the {}: start fewer stages, or give each a number of layers",
                    s, n_stages, config_.n_layers);
  }
  agree_on_split();
  split_ = split_.seen_by(parallel_.stage());
}

// A model that does not fit on one device runs without its draft head.
void Ranks::drop_head(const RunnerOptions& options) {
  if (options.eagle_head || options.mtp_head == MtpHead::kNeeded)
    throw Error("a draft head needs a model on one device, but this model is on {} devices: speculate with ngram",
                devices_.size());
  head_file_ = {}, config_.draft_head = nullptr;
}

// The device memory that the model may use. The options' limits apply to the devices that the options name.
size_t Ranks::memory_limit(const Device& device, const RunnerOptions& o) const {
  const size_t sharers = device.backend->is_host() ? static_cast<size_t>(o.parallel.ranks_of_host) : 1;
  const size_t free = device.backend->available_bytes() / sharers,
               all = std::max(device.backend->device_bytes() / sharers, free);
  const bool is_limited = devices_.size() == 1 || !device.backend->is_host();
  if (!is_limited || !o.fills_memory()) return free;
  if (o.memory_bytes > free)
    throw Error("the device has {} free, but {} are to be used: use less memory", human_bytes(free),
                human_bytes(o.memory_bytes));
  if (o.memory_bytes > 0) return o.memory_bytes;
  const auto limit = static_cast<size_t>(o.memory_share * static_cast<double>(all));
  if (limit <= all - free)
    throw Error("{} of the device's {} are already in use: a share of {} leaves no memory for the model",
                human_bytes(all - free), human_bytes(all), o.memory_share);
  return limit - (all - free);
}

// Before the weights are loaded, their bytes are an estimate.
std::vector<DeviceMemory> Ranks::device_memory(const RunnerOptions& options, bool is_loaded) const {
  std::vector<DeviceMemory> devices;
  for (size_t i = 0; i < devices_.size(); ++i) {
    const Device& device = *devices_[i];
    const Backend& backend = *device.backend;
    DeviceMemory one{.name = device.name, .backend = &backend};
    one.take = take_of(&backend, n_parts(), options);
    if (is_loaded) {
      one.weights = {backend.allocated_bytes() - device.taken_before, plan_.devices[i].borrowed_bytes};
      one.available = plan_.devices[i].available_bytes;
    } else {
      one.weights = weight_bytes(*source_, config_, backend, split_.part(static_cast<int>(i)));
      if (head_file_) one.weights += head_bytes(head_file_, backend);
      one.available = memory_limit(device, options);
      if (!backend.is_host()) one.available -= std::min(one.available, backend.driver_bytes());
    }
    devices.push_back(std::move(one));
  }
  return devices;
}

// Plans before the weights are loaded. Drops a head that the user did not ask for if memory is short.
// chooses: the plan decides the number of sequences.
void Ranks::make_first_plan(RunnerOptions& options, bool chooses) {
  const bool is_unasked = head_file_ && !options.eagle_head && options.mtp_head == MtpHead::kIfPresent;
  const auto plan = [&] {
    if (chooses) options.max_seqs = choose_sequences(config_, split_, device_memory(options, false), options);
    make_plan(options, false);
  };
  for (;;) {
    try {
      return plan();
    } catch (const MemoryError&) {
      if (is_unasked && head_file_) {
        drop_head(options);
        log_warn("the model's layer for multi-token prediction is not used: there is no memory for it");
      } else if (!save_memory(options)) {
        throw;
      }
    }
  }
}

void Ranks::make_plan(const RunnerOptions& options, bool is_loaded) {
  plan_ = plan_memory(config_, split_, device_memory(options, is_loaded), options);
  if (communicator_) agree(*communicator_, plan_);
}

void Ranks::load(const LoadProgress& progress) {
  const auto start = std::chrono::steady_clock::now();
  size_t file_bytes = 0, active_bytes = 0, chosen_bytes = 0;
  int64_t n_parameters = 0;
  for (size_t i = 0; i < devices_.size(); ++i) {
    Device& device = *devices_[i];
    const LoadProgress go_on = [&](size_t done, size_t total) { progress(file_bytes + done, total); };
    const OwnParts part = n_parts() > 1 ? split_.part(static_cast<int>(i)) : OwnParts{};
    device.weights = load_weights(*source_, config_, *device.backend, progress ? go_on : progress, part);
    file_bytes += device.weights.file_bytes, active_bytes += device.weights.active_bytes;
    chosen_bytes += device.weights.chosen_bytes;
    n_parameters += device.weights.n_parameters;
  }
  if (n_parts() > 1)
    check_unused(*source_, config_,
                 has_remote_stages() ? unused_by_all(*communicator_, source_->unused()) : source_->unused());
  if (head_file_) head_weights_ = load_head(head_file_, backend());
  for (const auto& device : devices_) device->backend->synchronize();
  Weights& all = head().weights;
  all.file_bytes = file_bytes, all.active_bytes = active_bytes, all.chosen_bytes = chosen_bytes;
  all.n_parameters = n_parameters;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  log_info("{} of weights in {:.3f} s, {:.1f} GB/s", human_bytes(file_bytes), seconds,
           static_cast<double>(file_bytes) / seconds * 1e-9);
  if (has_remote_stages()) add_other_stages(all);
  if (const std::string path = changed_mapped_file(); !path.empty())
    throw Error("{} was changed or truncated while it was loaded: start again when the file is complete",
                printable(path));
}

// Adds the bytes and parameters of the other stages to those of this process.
void Ranks::add_other_stages(Weights& weights) const {
  const std::array own = {static_cast<int64_t>(weights.file_bytes), static_cast<int64_t>(weights.active_bytes),
                          static_cast<int64_t>(weights.chosen_bytes), weights.n_parameters};
  std::vector<std::array<int64_t, own.size()>> all(static_cast<size_t>(communicator_->size()));
  communicator_->exchange(all.data(), own.data(), sizeof(own));
  const int n = parallel_.n_of_stage(), rank = communicator_->rank();
  for (int r = rank % n; r < communicator_->size(); r += n) {
    if (r == rank) continue;
    const auto& other = all[static_cast<size_t>(r)];
    weights.file_bytes += static_cast<size_t>(other[0]), weights.active_bytes += static_cast<size_t>(other[1]);
    weights.chosen_bytes += static_cast<size_t>(other[2]), weights.n_parameters += other[3];
  }
}

void Ranks::make_programs() {
  for (size_t i = 0; i < devices_.size(); ++i) {
    Device& device = *devices_[i];
    Backend& backend = *device.backend;
    const DecoderCaches caches = device.make_caches(plan_.devices[i]);
    device.part.emplace(device_part(config_, device.weights, caches, &backend,
                                    plan_.n_ctx, split_, static_cast<int>(i)));
  }
}

// Host and GPU are no pipeline: their speeds differ so much that one of them would wait most of the time.
bool Ranks::is_pipeline() const {
  if (has_remote_stages()) return true;
  std::vector<int> n_runs(devices_.size());
  for (const Split::Run& run : split_.runs()) ++n_runs[static_cast<size_t>(run.device)];
  const bool first_is_host = devices_[0]->backend->is_host();
  const auto is_like_first = [&](const auto& device) { return device->backend->is_host() == first_is_host; };
  return devices_.size() > 1 && std::ranges::all_of(devices_, is_like_first) &&
         std::ranges::all_of(n_runs, [](int n) { return n == 1; });
}

void Ranks::start_pipeline() {
  const auto on_fault = [this](std::exception_ptr fault) { return lost(std::move(fault)); };
  for (const auto& device : devices_)
    std::erase_if(device->part->program.blocks,
                  [](const Block& block) { return block.is<RemoteBlock>(); });
  allocate_programs();
  std::vector<std::unique_ptr<Stage>> stages;
  for (const Split::Run& run : split_.runs()) {
    if (run.device >= n_devices()) continue;  // of another process
    const Device& device = *devices_[static_cast<size_t>(run.device)];
    stages.push_back(std::make_unique<DeviceStage>(device.backend.get(), &device.part->program));
  }
  if (has_remote_stages())
    stages = linked_stages(
        std::move(stages.front()),
        {.ranks = communicator_, .n_stages = parallel_.n_stages, .dim = config_.dim, .n_vocab = config_.n_vocab});
  const size_t of_step = static_cast<size_t>(plan_.max_batch_tokens) * static_cast<size_t>(config_.dim);
  pipeline_ = std::make_unique<Pipeline>(std::move(stages), static_cast<int>(n_parts()), of_step, on_fault);
}

// Gives each RemoteBlock its runs, then lets the backends prepare the programs.
void Ranks::link_runs() {
  const int own = split_.head();
  std::vector<std::vector<Run>> remote;  // of each RemoteBlock
  std::vector<size_t> n_runs(devices_.size());
  bool was_own = true;
  for (const Split::Run& run : split_.runs()) {
    Device& device = *devices_[static_cast<size_t>(run.device)];
    const BlockRange blocks = device.part->runs[n_runs[static_cast<size_t>(run.device)]++];
    if (run.device != own && was_own) remote.emplace_back();
    if (run.device != own) remote.back().push_back({&device, blocks});
    was_own = run.device == own;
  }
  size_t next = 0;
  for (Block& block : devices_[static_cast<size_t>(own)]->part->program.blocks)
    if (auto* crossing = block.as<RemoteBlock>())
      crossing->run = [runs = remote[next++], reads = crossing->reads_x](const Batch& batch, float* rows) {
        run_remote(runs, batch, rows, reads);
      };
  allocate_programs();
}

void Ranks::allocate_programs() {
  for (const auto& device : devices_) {
    head_file_ ? allocate_with_head() : device->part->program.allocate(*device->backend, plan_.limits);
    device->log_memory();
  }
}

// The draft head's programs share the backend's scratch with the model's program.
void Ranks::allocate_with_head() {
  Program& program = devices_[0]->part->program;
  StepLimits limits = program.place(backend(), plan_.limits);
  draft_head_.emplace(config_, weights(), head_weights_, program, plan_.kv.front(), plan_.limits, backend());
  limits = largest(limits, draft_head_->limits());
  backend().reserve(limits);
  backend().prepare_program(program);
  draft_head_->prepare();
}

// Makes the runs one after another. `rows`, in host memory, carries the rows from each to the next.
void Ranks::run_remote(std::span<const Run> runs, const Batch& batch, float* rows, bool reads) {
  for (const Run& run : runs) {
    Backend& backend = *run.device->backend;
    const Program& program = run.device->part->program;
    const Tensor x = program.x.slice_rows(0, batch.n_tokens());
    if (reads) backend.upload(x, rows);
    if (run.device->part->runs.size() == 1) {
      backend.run(program, batch);
    } else {
      backend.run_part(program, batch, run.blocks);
    }
    backend.download(rows, x);
    reads = true;
  }
}

Ranks::~Ranks() {
  if (!communicator_) return;
  try {
    if (pipeline_) pipeline_->drain();
    if (communicator_->rank() == 0) communicator_->send({});
  } catch (...) {  // the others have ended already
  }
  pipeline_.reset();
  disconnect();
  followers_.reset();
}

void Ranks::disconnect() {
  for (const auto& device : devices_) device->backend->connect(nullptr);
}

void Ranks::run_as_follower() {
  for (;;) {
    const std::vector<uint8_t> message = communicator_->receive();
    if (message.empty()) break;
    const auto received = std::make_shared<const ReceivedBatch>(message, info_.block_size);
    pipeline_ ? pipeline_->follow(received->batch, received) : forward(received->batch);
  }
  if (pipeline_) pipeline_->drain();
  disconnect();
}

void Ranks::forward(const Batch& batch) {
  const Program& program = head().part->program;
  batch_ = batch;
  try {
    if (communicator_ && communicator_->rank() == 0) communicator_->send(message_of(batch, info_.block_size));
    if (pipeline_) return pipeline_->forward(batch);
    head().backend->run(program, batch);
  } catch (...) {
    std::rethrow_exception(lost(std::current_exception()));
  }
  logits_ = program.output(batch.n_tokens(), batch.n_seqs(), batch.n_logits());
}

// If a rank fails, its fault ends all ranks. Without ranks, the fault stays as it is.
std::exception_ptr Ranks::lost(std::exception_ptr fault) const {
  if (!communicator_) return fault;
  const std::string name = rank_name(communicator_->rank(), communicator_->size());
  try {
    std::rethrow_exception(fault);
  } catch (const DeviceLost&) {
  } catch (const std::bad_alloc&) {
    fault = std::make_exception_ptr(
        DeviceLost("{} is out of memory: use a smaller model, a shorter context or fewer sequences at once", name));
  } catch (const std::exception& error) {
    fault = std::make_exception_ptr(DeviceLost("{}: {}", name, error.what()));
  }
  end_all_ranks(parallel_, fault);
  return fault;
}

void Ranks::sample(std::span<const SampleRow> rows) {
  if (pipeline_) return pipeline_->sample(rows);
  backend().sample(logits_, rows);
}

std::vector<Sampled> Ranks::wait() {
  if (pipeline_) return pipeline_->wait();
  std::vector<Sampled> drawn = backend().wait();
  if (draft_head_) draft_head_->drawn(drawn);
  return drawn;
}

bool Ranks::is_drawn() { return pipeline_ != nullptr || backend().is_drawn(); }

uint64_t Ranks::progress() const {
  uint64_t sum = 0;
  for (const auto& device : devices_) sum += device->backend->progress();
  return sum;
}

size_t Ranks::allocated_bytes() const {
  size_t bytes = 0;
  for (const auto& device : devices_) bytes += device->backend->allocated_bytes();
  return bytes;
}

std::string Ranks::description() const {
  std::string all;
  for (const auto& device : devices_) all += (all.empty() ? "" : "; ") + device->backend->description();
  return all;
}

std::vector<float> Ranks::logits() {
  if (pipeline_) return pipeline_->logits();
  std::vector<float> host(static_cast<size_t>(logits_.rows * logits_.cols));
  if (!host.empty()) backend().download(host.data(), logits_);
  return host;
}

}  // namespace ingot
