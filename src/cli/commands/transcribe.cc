// ingot transcribe: writes down what recordings say, as text or subtitles.
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/threads.h"
#include "cli/options/commands.h"
#include "cli/options/hub.h"
#include "cli/terminal/terminal.h"
#include "model/speech/speech_model.h"
#include "model/speech/transcript_text.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

constexpr int kDefaultBeams = 5;

struct TranscribeVerb {
  std::string model, device = "cpu", quantize, out, log_level = "warn";
  std::vector<std::string> files;
  HubFlags hub;
  int n_threads = 0;
  bool wants[std::size(kTranscriptFormats)] = {};  // by TranscriptFormat
  bool no_fallback = false, check_tensors = false;
  float temperature = 0;
  std::optional<int> n_beams;
  SpeechOptions options;
  AudioLimits limits;

  std::vector<TranscriptFormat> formats() const {
    std::vector<TranscriptFormat> all;
    for (size_t i = 0; i < std::size(wants); ++i)
      if (wants[i]) all.push_back(static_cast<TranscriptFormat>(i));
    if (all.empty()) all.push_back(TranscriptFormat::kText);
    return all;
  }
};

// The bytes of a file, mapped, or of standard input.
struct Recording {
  explicit Recording(const std::string& path, uint64_t max_bytes) {
    if (path == "-") {
      text = read_file(path, max_bytes);
    } else {
      file.emplace(path);
    }
  }
  std::span<const std::byte> bytes() const {
    return file ? std::as_bytes(file->bytes()) : std::as_bytes(std::span(text));
  }
  std::string text;
  std::optional<MappedFile> file;
};

std::string name_of(const std::string& path) { return path == "-" ? "standard input" : printable(path); }

// The files that are written for a recording. Throws UsageError if two recordings would have the same.
std::vector<std::string> out_names(const TranscribeVerb& o) {
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (const std::string& file : o.files) {
    const std::string stem = file == "-" ? "stdin" : fs::path(file).stem().string();
    names.push_back((fs::path(o.out) / stem).string());
    if (!seen.insert(stem).second)
      throw UsageError("two recordings would be written to {}: transcribe them one by one", printable(names.back()));
  }
  return names;
}

void check_usage(const TranscribeVerb& o) {
  const auto formats = o.formats();
  if (o.options.n_parallel > 1 && o.options.carries_context)
    throw UsageError("--carry-context reads one window after the other: leave out --batch");
  if (o.options.word_times && !o.wants[static_cast<size_t>(TranscriptFormat::kJson)])
    throw UsageError("--word-times are part of the JSON: give --json too");
  if (!o.out.empty()) return;
  if (formats.size() > 1) throw UsageError("several formats need a folder to write to: give -o DIR");
  if (o.files.size() > 1 && formats.front() != TranscriptFormat::kText)
    throw UsageError("subtitles and JSON of several recordings need a folder to write to: give -o DIR");
}

// Shows how far a recording is, and prints the text of each window at once if nothing else is printed.
SpeechProgress progress_of(ProgressBar& bar, bool prints) {
  return {.on_window = [&bar, prints](std::span<const SpeechSegment> added, double done, std::optional<double> all) {
    constexpr double kBytesASecond = 2.0 * kSpeechRate;
    if (prints) {
      if (!added.empty()) bar.wipe();
      for (const SpeechSegment& segment : added) {
        const std::string line = trimmed(segment.text) + "\n";
        std::fwrite(line.data(), 1, line.size(), stdout);
      }
      std::fflush(stdout);
    }
    if (all)
      bar.update(static_cast<size_t>(std::min(done, *all) * kBytesASecond), static_cast<size_t>(*all * kBytesASecond));
    return !InterruptGuard::interrupted();
  }};
}

void transcribe_file(const TranscribeVerb& o, SpeechModel& model, const std::string& path, const std::string& out) {
  const auto start = std::chrono::steady_clock::now();
  const auto formats = o.formats();
  const bool prints = o.out.empty() && formats.front() == TranscriptFormat::kText;
  const Recording recording(path, o.limits.max_bytes);
  const auto audio = open_audio(recording.bytes(), o.limits);
  if (prints && o.files.size() > 1) fmt::print("==> {} <==\n", name_of(path));
  ProgressBar bar("transcribing");
  const Transcript transcript = model.transcribe(*audio, o.options, progress_of(bar, prints));
  bar.wipe();
  if (InterruptGuard::interrupted()) throw CLI::RuntimeError(130);
  if (transcript.is_truncated) log_warn("{}: the file ends early: the rest is missing", name_of(path));
  for (const TranscriptFormat format : formats) {
    const std::string text = render(transcript, format);
    if (!o.out.empty()) {
      write_file(fmt::format("{}.{}", out, kTranscriptFormats[static_cast<size_t>(format)]),
                 {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
    } else if (!prints) {
      std::fwrite(text.data(), 1, text.size(), stdout);
    }
  }
  const double taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  tell("{}\n",
       faint(fmt::format("{}: {:.1f} s of sound in {:.2f} s, {:.1f} times real time; language {}", name_of(path),
                         transcript.seconds, taken, transcript.seconds / taken, transcript.language)));
}

void transcribe(TranscribeVerb& o) {
  set_log_level(parse_log_level(o.log_level));
  check_usage(o);
  if (o.no_fallback || o.temperature > 0) o.options.temperatures = {o.temperature};
  o.options.n_beams = o.n_beams.value_or(o.options.n_parallel > 1 ? 1 : kDefaultBeams);
  std::vector<std::string> names(o.files.size());
  if (!o.out.empty()) {
    names = out_names(o);
    fs::create_directories(o.out);
  }
  SpeechFiles files = open_speech_files(resolve_model(o.model, o.hub), o.quantize);
  if (o.check_tensors) files.weights = checked_source(std::move(files.weights));
  SpeechModel model(std::move(files), {.device = o.device, .n_threads = o.n_threads},
                    {.n_parallel = o.options.n_parallel, .n_beams = o.options.n_beams});
  model.check(o.options);
  const InterruptGuard guard;
  size_t n_failed = 0;
  for (size_t i = 0; i < o.files.size(); ++i) try {
      transcribe_file(o, model, o.files[i], names[i]);
    } catch (const Error& error) {
      if (o.files.size() == 1) throw Error("{}: {}", name_of(o.files[i]), error.what());
      tell("ingot: {}: {}\n", name_of(o.files[i]), error.what());
      ++n_failed;
    }
  if (n_failed > 0) throw Error("{} of {} recordings could not be transcribed", n_failed, o.files.size());
}

void add_decoding_options(CLI::App& command, TranscribeVerb& o) {
  command.add_option("-l,--language", o.options.language,
                     "language of the speech, such as de or german; default: detected in the first 30 seconds");
  command.add_flag("--translate", o.options.translates, "write English, whatever the language");
  command.add_option("--prompt", o.options.prompt,
                     "text that could come before: names and words that the model should expect, and a style");
  command.add_option("--hotwords", o.options.hotwords,
                     "words to expect in every window, such as names; they come before the prompt");
  command.add_flag("--carry-context", o.options.carries_context,
                   "show the model the text of the 30 seconds before; more consistent, but errors may repeat");
  command
      .add_option("--batch", o.options.n_parallel,
                  "windows that are transcribed at once; they end at pauses instead of after sentences")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command
      .add_option("--beams", o.n_beams,
                  "search for the likeliest text with this many beams; 1: greedy, which is faster. Default: 5, as "
                  "other programs for such models have, but 1 with --batch, where beams write words for some noise")
      ->check(CLI::Range(1, kMaxBeams));
  command.add_flag("!--no-vad", o.options.finds_voice,
                   "also begin windows where only steady noise is; by default, a detector of voices skips it");
  command.add_flag("--word-times", o.options.word_times, "also say when each word was said (with --json)");
  command.add_flag("!--no-times", o.options.with_times,
                   "let the model write no times: each segment is then a window of 30 seconds");
  command.add_option("--temperature", o.temperature, "sampling temperature; with it, no other one is tried")
      ->check(CLI::Range(0.0f, 10.0f))
      ->capture_default_str();
  command.add_flag("--no-fallback", o.no_fallback,
                   "keep a text that repeats itself or is unlikely, instead of trying higher temperatures");
  command.add_option("--compression-threshold", o.options.most_compression,
                     "a text that zlib compresses by more repeats itself [2.4]");
  command.add_option("--logprob-threshold", o.options.least_logprob,
                     "a text with a lower mean log-probability is unlikely [-1]");
  command.add_option("--no-speech-threshold", o.options.most_no_speech,
                     "a window with a higher probability of no speech is silent if its text is unlikely [0.6]");
  command
      .add_option("--silence-level", o.options.quietest,
                  "sound that is quieter than this is silence, which is skipped where a window would begin, in dBFS")
      ->capture_default_str();
  command.add_option("-s,--seed", o.options.seed, "random seed of temperatures above 0")->capture_default_str();
}

}  // namespace

void add_transcribe(CLI::App& app) {
  auto o = std::make_shared<TranscribeVerb>();
  CLI::App* command = app.add_subcommand("transcribe", "Write down what recordings say");
  command->add_option("FILE", o->files, "recordings: " + audio_formats() + "; - for standard input")->required();
  command
      ->add_option("-m,--model,--hf-repo", o->model,
                   "Whisper model: directory with safetensors or of CTranslate2, file of whisper.cpp (ggml-*.bin), or "
                   "ORG/REPO of the Hub")
      ->required();
  command->add_flag("--txt", o->wants[0], "write text, a line for each segment (default)");
  command->add_flag("--srt", o->wants[1], "write subtitles in SRT");
  command->add_flag("--vtt", o->wants[2], "write subtitles in WebVTT");
  command->add_flag("--json", o->wants[3], "write the verbose JSON of OpenAI's API");
  command->add_option("-o,--out", o->out, "write a file for each recording and format to this folder");
  add_decoding_options(*command, *o);
  command->add_option("--max-seconds", o->limits.max_seconds, "maximum length of a recording")
      ->check(CLI::Range(1.0, 1e7))
      ->capture_default_str();
  command
      ->add_option("--device", o->device,
                   "device to compute on: cpu, cuda, cuda:1 (the second GPU), or ref (slow reference in plain C++)")
      ->capture_default_str();
  command
      ->add_option("-t,--threads", o->n_threads,
                   "number of threads to compute with; 0: one for each core this process may use, or fewer if that is "
                   "faster")
      ->check(CLI::Range(0, kMaxThreads))
      ->capture_default_str();
  command->add_option(
      "--quantize", o->quantize,
      "quantize F32, F16 and BF16 matrices while the model loads, such as to q8_0: faster, and a little "
      "less exact");
  command->add_flag("--check-tensors", o->check_tensors, "reject weights that are not finite; reads all weights first");
  command->add_option("--log-level", o->log_level, "log level: debug, info, warn, error or off")->capture_default_str();
  add_hub_options(*command, o->hub);
  command->footer(
      "Examples:\n  ingot transcribe -m ggml-base.en.bin talk.mp3\n"
      "  ingot transcribe -m openai/whisper-large-v3-turbo --srt -o subtitles *.flac\n"
      "  ffmpeg -i film.mkv -f wav - | ingot transcribe -m whisper-small --translate --vtt - > film.vtt");
  command->callback([o] { transcribe(*o); });
}

}  // namespace ingot
