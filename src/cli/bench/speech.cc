// ingot bench speech: how fast a speech model with random weights is, by stage. "hear" makes the features of windows of
// 30 seconds and runs the encoder; "write" reads the prompts and writes 100 tokens for each window, the likeliest ones.
// Batches are windows that are heard and written at once.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "base/error.h"
#include "base/json.h"
#include "base/threads.h"
#include "cli/bench/model.h"
#include "cli/terminal/terminal.h"
#include "io/audio/decode.h"
#include "model/speech/speech_shapes.h"
#include "model/speech/speech_writer.h"

namespace ingot {
namespace {

using SpeechBenchClock = std::chrono::steady_clock;

struct SpeechBenchOptions {
  std::string shape = "large-v3-turbo", device = "cpu";
  std::vector<int> batches = {1, 8, 32};
  int n = 5, n_tokens = 100, n_threads = 0, n_beams = 1;
  bool json = false;
};

struct SpeechTimes {
  std::vector<double> hear_ms, write_ms;
};

double since_ms(SpeechBenchClock::time_point start) {
  return std::chrono::duration<double, std::milli>(SpeechBenchClock::now() - start).count();
}

// Noise, another one for each window.
std::vector<float> noise(int n, uint32_t seed) {
  std::vector<float> samples(static_cast<size_t>(n));
  for (float& x : samples) x = static_cast<float>((seed = seed * 1664525 + 1013904223) >> 8) * 0x1p-25f - 0.25f;
  return samples;
}

SpeechTimes measure_batch(SpeechWriter& writer, const SpeechConfig& config, const SpeechTokens& tokens,
                          const SpeechBenchOptions& o, int n_windows) {
  const SpeechRules rules(tokens, std::array{tokens.end}, {}, 0, false);  // without an end
  const std::vector<int32_t> prompt = {tokens.start, 1, 2, tokens.no_times};
  std::vector<std::vector<float>> samples;
  for (int i = 0; i < n_windows; ++i) samples.push_back(noise(config.n_samples(), static_cast<uint32_t>(i)));
  const std::vector<std::span<const float>> windows(samples.begin(), samples.end());
  SpeechTimes times;
  for (int i = 0; i <= o.n; ++i) {
    const auto start = SpeechBenchClock::now();
    const std::vector<SharedFloats> sounds = writer.hear(windows);
    const double hear_ms = since_ms(start);
    std::vector<SpeechTask> tasks;
    for (const SharedFloats& sound : sounds)
      tasks.push_back({.sound = sound.all(),
                       .prompt = prompt,
                       .rules = &rules,
                       .beams = {.n_beams = o.n_beams},
                       .max_tokens = o.n_tokens});
    const auto heard = SpeechBenchClock::now();
    writer.write(tasks);
    if (i == 0) continue;  // the first one is not warm
    times.hear_ms.push_back(hear_ms), times.write_ms.push_back(since_ms(heard));
  }
  return times;
}

void bench_speech(const SpeechBenchOptions& o) {
  const SpeechConfig config = speech_shape(o.shape);
  const SpeechTokens tokens = tokens_of_shape(config);
  const int most = std::ranges::max(o.batches);
  SpeechNet net(config, random_speech(), {.device = o.device, .n_threads = o.n_threads},
                {.windows = most, .heard = std::min(most, 4), .texts = most * o.n_beams});
  SpeechWriter writer(net, tokens, o.n_threads);
  const double seconds = config.n_samples() / static_cast<double>(kSpeechRate);
  if (!o.json) fmt::print("{} on {}, {} tokens a window\n", o.shape, net.backend().description(), o.n_tokens);
  for (const int n : o.batches) {
    SpeechTimes times = measure_batch(writer, config, tokens, o, n);
    const double hear = percentile(times.hear_ms, 0.5), write = percentile(times.write_ms, 0.5);
    const double speed = n * seconds * 1e3 / (hear + write);
    if (o.json) {
      fmt::print("{}\n", nlohmann::ordered_json{{"shape", o.shape},
                                                {"device", o.device},
                                                {"windows", n},
                                                {"beams", o.n_beams},
                                                {"tokens", o.n_tokens},
                                                {"hear_ms", hear},
                                                {"write_ms", write},
                                                {"times_real_time", speed}}
                               .dump());
    } else {
      fmt::print("  {:3} at once  hear {:9.2f} ms  write {:9.2f} ms  {:8.1f} times real time\n", n, hear, write,
                 speed);
    }
  }
}

}  // namespace

void add_bench_speech(CLI::App& bench) {
  auto o = std::make_shared<SpeechBenchOptions>();
  CLI::App* command = bench.add_subcommand("speech", "Measure a speech model with random weights, by stage");
  command->add_option("--shape", o->shape, "shape of a model of OpenAI: " + speech_shape_names())
      ->capture_default_str();
  command->add_option("--device", o->device, "device to compute on: cpu, cuda, cuda:1")->capture_default_str();
  command->add_option("--batches", o->batches, "numbers of windows at once")
      ->delimiter(',')
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command->add_option("--tokens", o->n_tokens, "tokens that are written for each window")
      ->check(CLI::Range(1, 400))
      ->capture_default_str();
  command->add_option("--beams", o->n_beams, "beams of each window")->check(CLI::Range(1, 16))->capture_default_str();
  command->add_option("-n,--repeat", o->n, "how often each figure is measured")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("-t,--threads", o->n_threads, "number of threads; 0: all cores")
      ->check(CLI::Range(0, kMaxThreads))
      ->capture_default_str();
  command->add_flag("--json", o->json, "print a JSON object for each batch");
  command->footer("Examples:\n  ingot bench speech --shape tiny\n"
                  "  ingot bench speech --shape large-v3-turbo --device cuda --batches 1,8,32,64");
  command->callback([o] { bench_speech(*o); });
}

}  // namespace ingot
