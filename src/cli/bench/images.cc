// ingot bench images: how long an image takes, by stage. "prepare" goes from the file's bytes to normalised pixels,
// "encode" runs the vision tower, "first token" is all of that with the prompt's step in a text model. "second turn"
// continues the conversation, with the same image and 24 more tokens. With --streams, other sequences write beside all
// of that, and the gaps between their tokens are measured.
#include <fmt/format.h>

#include <chrono>
#include <future>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/threads.h"
#include "cli/bench/model.h"
#include "cli/options/media.h"
#include "cli/terminal/terminal.h"
#include "engine/engine.h"
#include "io/digest.h"
#include "model/loader.h"
#include "model/program/shapes.h"
#include "model/vision/tower_config.h"
#include "model/vision/tower_shapes.h"

namespace ingot {
namespace {

using ImageClock = std::chrono::steady_clock;
constexpr int kTokensBefore = 8, kTokensAfter = 16, kTokensOfTurn = 24;
constexpr int kTextDim = 2560;  // of a tower without a text model

struct ImageBenchOptions {
  BenchSubject subject;
  std::string tower, file, size = "1024x1024";
  int n = 10, at_once = 4, n_streams = 0;
  bool json = false;
};

// A model, or random weights of known shapes. Without a text model, only the tower is measured.
struct ImageBench {
  std::unique_ptr<VisionModel> vision;
  std::unique_ptr<Ranks> runner;
  Peak peak;
};

struct Samples {
  std::vector<double> prepare_ms, encode_ms, first_token_ms, second_turn_ms;
  int n_rows = 0, n_patches = 0;
  double first_image_ms = 0;  // preparing and encoding, before anything is warm
  double images_per_s = 0;  // several at once, from the file to the vectors
  std::vector<double> gaps_ms;
};

double ms_since(ImageClock::time_point start) {
  return std::chrono::duration<double, std::milli>(ImageClock::now() - start).count();
}

ImageBench load_image_bench(ImageBenchOptions& o) {
  ImageBench bench;
  RunnerOptions runner = runner_options(o.subject.model);
  runner.n_ctx = runner.n_kv_tokens = 1 << 15;
  runner.max_seqs = 2 + o.n_streams;
  if (o.tower.empty()) {
    o.subject.model.images.is_wanted = true;
    LoadedModel model = open_model(o.subject.model, runner);
    if (!model.vision) throw UsageError("the model has no vision tower: name another, or give --tower");
    bench.vision = std::move(model.vision), bench.runner = std::move(model.runner);
    bench.peak = bench.runner->backend().measure_peak(Format::F16);
    return bench;
  }
  std::optional<Config> config;
  if (!o.subject.shape.empty()) config = config_of_shape(o.subject.shape);
  VisionOptions vision{.backend = runner.backend, .mmproj = {}, .projector = {}};
  bench.peak = create_backend(vision.backend)->measure_peak(Format::F16);
  bench.vision = vision_of_shape(o.tower, config ? config->dim : kTextDim, vision);
  if (!config) return bench;
  const std::optional<Format> format = format_from_name(o.subject.type);
  if (!format) throw UsageError("unknown type '{}': use one such as F16 or Q4_K", printable(o.subject.type, 64));
  bench.vision->adapt(*config);
  ProgressBar bar("loading");
  bench.runner = start_ranks(*config, dummy_source(*config, *format, 1), runner,
                             [&](size_t done, size_t total) { bar.update(done, total); });
  return bench;
}

// A picture that no other call gives, from a file or of the wanted size.
struct Shown {
  Picture picture;
  std::string content;  // see VisionModel::prepare()
};
struct Pictures {
  explicit Pictures(const ImageBenchOptions& o) {
    if (!o.file.empty()) {
      file = read_media_file(o.file, MediaKind::kImage, {});
      return;
    }
    const size_t cross = o.size.find('x');
    int width = 0, height = 0;
    if (cross == std::string::npos || !CLI::detail::lexical_cast(o.size.substr(0, cross), width) ||
        !CLI::detail::lexical_cast(o.size.substr(cross + 1), height) || width < 1 || height < 1 || width > 1 << 14 ||
        height > 1 << 14)
      throw UsageError("--size {}: expected WIDTHxHEIGHT in pixels, such as 1024x1024", printable(o.size, 64));
    drawn = {.width = width, .height = height, .rgb = std::vector<uint8_t>(size_t{3} * width * height)};
    for (size_t i = 0; i < drawn.rgb.size(); ++i) drawn.rgb[i] = static_cast<uint8_t>(i * 2654435761u >> 24);
  }
  Shown next(unsigned number) const {
    if (file.bytes) {
      Digest digest = Digest::sha256();
      digest.update({reinterpret_cast<const uint8_t*>(file.bytes->data()), file.bytes->size()});
      return {decode_image(*file.bytes, {}), fmt::format("{} {}", digest.finish(), number)};
    }
    Shown shown{drawn, {}};
    for (int i = 0; i < 4; ++i) shown.picture.rgb[static_cast<size_t>(i)] = static_cast<uint8_t>(number >> 8 * i);
    return shown;
  }
  MediaFile file;
  Picture drawn;
};

class FirstToken final : public TokenSink {
 public:
  void on_token(const Sampled&) override { at = ImageClock::now(); }
  void on_finish(const Finish& finish) override { error = finish.error, is_done = true; }
  bool is_done = false;
  std::optional<ImageClock::time_point> at;
  std::string error;
};

class StreamOfTokens final : public TokenSink {
 public:
  void on_token(const Sampled&) override {
    const auto now = ImageClock::now();
    if (last) gaps_ms.push_back(std::chrono::duration<double, std::milli>(now - *last).count());
    last = now;
  }
  void on_finish(const Finish&) override {}
  std::optional<ImageClock::time_point> last;
  std::vector<double> gaps_ms;
};

PreparedMedia prepare_next(const VisionModel& vision, const Pictures& pictures, unsigned number) {
  const Shown shown = pictures.next(number);
  return vision.prepare(shown.picture, {}, shown.content);
}

// The time from `start` to the answer's first token.
double run_prompt(Engine& engine, std::vector<int32_t> prompt, std::vector<PromptEmbedding> embeddings,
                  ImageClock::time_point start) {
  const auto sink = std::make_shared<FirstToken>();
  engine.submit({.prompt = std::move(prompt),
                 .embeddings = std::move(embeddings),
                 .sampling = {.temperature = 0},
                 .max_tokens = 1,
                 .sink = sink});
  while (!sink->is_done && engine.step()) {
  }
  if (!sink->at) throw Error("a request has failed: {}", sink->error);
  return std::chrono::duration<double, std::milli>(*sink->at - start).count();
}

std::vector<int32_t> image_prompt(const ImageBench& bench, const Engine& engine, int n_rows) {
  std::vector<int32_t> prompt =
      bench_tokens(static_cast<size_t>(kTokensBefore + n_rows + kTokensAfter), engine.info().n_vocab);
  for (int32_t& token : prompt) token += token == bench.vision->token();
  std::fill_n(prompt.begin() + kTokensBefore, n_rows, bench.vision->token());
  return prompt;
}

void measure_one(ImageBench& bench, Engine* engine, const Pictures& pictures, unsigned number, Samples& to) {
  const auto start = ImageClock::now();
  const PreparedMedia prepared = prepare_next(*bench.vision, pictures, number);
  to.prepare_ms.push_back(ms_since(start));
  const auto prepared_at = ImageClock::now();
  const EncodedMedia encoded = bench.vision->encode(prepared);
  to.encode_ms.push_back(ms_since(prepared_at));
  to.n_rows = prepared.n_rows;
  const TowerConfig& tower = bench.vision->tower();
  to.n_patches = prepared.n_rows * tower.merge * tower.merge;
  if (engine == nullptr) return;
  std::vector<int32_t> prompt = image_prompt(bench, *engine, prepared.n_rows);
  to.first_token_ms.push_back(run_prompt(*engine, prompt, bench.vision->place(prompt, {&encoded, 1}), start));
  const auto turn = ImageClock::now();
  for (const int32_t token : bench_tokens(kTokensOfTurn, engine->info().n_vocab)) prompt.push_back(token + 1);
  to.second_turn_ms.push_back(run_prompt(*engine, prompt, bench.vision->place(prompt, {&encoded, 1}), turn));
}

// Sequences that write while another thread prepares and encodes images, whose prompts then join the steps.
void measure_streams(ImageBench& bench, Engine& engine, const Pictures& pictures, const ImageBenchOptions& o,
                     Samples& to) {
  std::vector<std::shared_ptr<StreamOfTokens>> streams;
  for (int i = 0; i < o.n_streams; ++i) {
    streams.push_back(std::make_shared<StreamOfTokens>());
    engine.submit({.prompt = bench_tokens(static_cast<size_t>(kTokensOfTurn + i), engine.info().n_vocab),
                   .sampling = {.temperature = 0},
                   .ignore_eos = true,
                   .sink = streams.back()});
  }
  const auto step = [&](int n) {
    while (n-- > 0) engine.step();
  };
  step(20);
  for (const auto& stream : streams) stream->gaps_ms.clear();
  for (int i = 0; i < o.n; ++i) {
    auto image = std::async(std::launch::async, [&] {
      const PreparedMedia prepared = prepare_next(*bench.vision, pictures, static_cast<unsigned>(5000 + i));
      return std::pair(prepared.n_rows, bench.vision->encode(prepared));
    });
    while (image.wait_for(std::chrono::seconds(0)) != std::future_status::ready) engine.step();
    const auto [n_rows, encoded] = image.get();
    std::vector<int32_t> prompt = image_prompt(bench, engine, n_rows);
    auto placed = bench.vision->place(prompt, {&encoded, 1});
    run_prompt(engine, std::move(prompt), std::move(placed), ImageClock::now());
    step(20);
  }
  for (const auto& stream : streams) to.gaps_ms.insert(to.gaps_ms.end(), stream->gaps_ms.begin(), stream->gaps_ms.end());
}

// Several threads prepare and encode, as in a server; the tower takes one image at a time.
double measure_at_once(VisionModel& vision, const Pictures& pictures, int n_threads, int n_each) {
  const auto start = ImageClock::now();
  std::vector<std::future<void>> all;
  for (int thread = 0; thread < n_threads; ++thread)
    all.push_back(std::async(std::launch::async, [&, thread] {
      for (int i = 0; i < n_each; ++i)
        vision.encode(prepare_next(vision, pictures, static_cast<unsigned>(1000 * (thread + 1) + i)));
    }));
  for (auto& one : all) one.get();
  return 1000.0 * n_threads * n_each / ms_since(start);
}

void report(const ImageBenchOptions& o, const ImageBench& bench, Samples& s) {
  const auto median = [](std::vector<double>& values) { return percentile(values, 0.5); };
  const double encode = median(s.encode_ms), flops = tower_flops(bench.vision->tower(), s.n_patches);
  nlohmann::ordered_json json = {{"tower", o.tower.empty() ? bench.vision->tower().family->gguf_name : o.tower},
                                 {"device", o.subject.model.device},
                                 {"tokens", s.n_rows},
                                 {"patches", s.n_patches},
                                 {"prepare_ms", median(s.prepare_ms)},
                                 {"encode_ms", encode},
                                 {"first_image_ms", s.first_image_ms},
                                 {"tower_tflop_s", flops * 1e-9 / encode},
                                 {"matrix_share", flops * 1e-6 / encode / bench.peak.matmul_gflop_s},
                                 {"images_per_s", s.images_per_s}};
  if (!s.first_token_ms.empty()) {
    json["first_token_ms"] = median(s.first_token_ms);
    json["second_turn_ms"] = median(s.second_turn_ms);
  }
  if (!s.gaps_ms.empty()) {
    json["streams"] = o.n_streams;
    json["gap_ms_p50"] = percentile(s.gaps_ms, 0.5), json["gap_ms_p99"] = percentile(s.gaps_ms, 0.99);
  }
  if (o.json) return fmt::print("{}\n", json.dump());
  fmt::print("{} on {}: {} patches, {} tokens\n", json["tower"].get<std::string>(), printable(o.subject.model.device),
             s.n_patches, s.n_rows);
  fmt::print("  prepare      {:9.2f} ms\n  encode       {:9.2f} ms, {:.1f} TFLOP/s, {:.0f} % of the matrix rate\n",
             median(s.prepare_ms), encode, flops * 1e-9 / encode, 100 * json["matrix_share"].get<double>());
  fmt::print("  first image  {:9.2f} ms for both\n  {} at once    {:9.1f} images/s\n", s.first_image_ms, o.at_once,
             s.images_per_s);
  if (!s.first_token_ms.empty())
    fmt::print("  first token  {:9.2f} ms\n  second turn  {:9.2f} ms\n", median(s.first_token_ms),
               median(s.second_turn_ms));
  if (!s.gaps_ms.empty())
    fmt::print("  {} streams    {:9.2f} ms between tokens, p99 {:.2f} ms\n", o.n_streams, percentile(s.gaps_ms, 0.5),
               percentile(s.gaps_ms, 0.99));
}

void bench_images(ImageBenchOptions& o) {
  if (o.n_streams > 0 && !o.tower.empty() && o.subject.shape.empty())
    throw UsageError("--streams needs a text model: a MODEL, or --shape");
  if (!o.subject.shape.empty() && o.tower.empty()) throw UsageError("--shape needs --tower: {}", tower_names());
  const Pictures pictures(o);
  ImageBench bench = load_image_bench(o);
  std::optional<Engine> engine;
  if (bench.runner) engine.emplace(*bench.runner).warm_up();
  Samples samples, warm;
  unsigned number = 0;
  for (int i = 0; i < 2; ++i) measure_one(bench, engine ? &*engine : nullptr, pictures, number++, warm);
  if (bench.runner) bench.runner->backend().await_kernels();
  for (int i = 0; i < o.n; ++i) measure_one(bench, engine ? &*engine : nullptr, pictures, number++, samples);
  samples.images_per_s = measure_at_once(*bench.vision, pictures, o.at_once, std::max(1, o.n / 2));
  if (engine && o.n_streams > 0) measure_streams(bench, *engine, pictures, o, samples);
  samples.first_image_ms = warm.prepare_ms.front() + warm.encode_ms.front();
  report(o, bench, samples);
}

}  // namespace

void add_bench_images(CLI::App& bench) {
  auto o = std::make_shared<ImageBenchOptions>();
  CLI::App* command = bench.add_subcommand("images", "Measure how long an image takes, by stage");
  add_bench_subject(*command, o->subject);
  command->add_option("--tower", o->tower, "use random weights of a known tower: " + tower_names());
  auto* file = command->add_option("-i,--image", o->file, "image file to measure; its decoding counts too")
                   ->check(CLI::ExistingFile);
  command->add_option("--size", o->size, "size of the picture without a file")->excludes(file)->capture_default_str();
  command->add_option("-n,--repeat", o->n, "how often each figure is measured")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--at-once", o->at_once, "images that are prepared at the same time, for images a second")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command->add_option("--streams", o->n_streams, "sequences that write while images are encoded and read")
      ->check(CLI::Range(0, 256))
      ->capture_default_str();
  command->add_option("-t,--threads", o->subject.model.n_threads, "number of threads; 0: all cores")
      ->check(CLI::Range(0, kMaxThreads))
      ->capture_default_str();
  command->add_flag("--json", o->json, "print one JSON object");
  command->footer(
      "Examples:\n  ingot bench images demo-vision -i photo.jpg\n"
      "  ingot bench images --tower gemma-3 --size 896x896 --device cuda\n"
      "  ingot bench images --tower qwen3.5 --shape qwen3.5-9b --type BF16 -i photo.jpg --device cuda");
  command->callback([o] { bench_images(*o); });
}

}  // namespace ingot
