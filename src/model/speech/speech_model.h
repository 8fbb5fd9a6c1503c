// SpeechModel: a Whisper model that transcribes recordings (arXiv:2212.04356). A recording is read in windows of 30
// seconds. The model writes the text of a window with times, and the next window begins where the last whole segment
// ends. Or windows end at pauses, and several are written at once. If the text of a window looks wrong, because it
// repeats itself or is unlikely, the window is written again, with chance (temperatures).
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fair_mutex.h"
#include "io/audio/decode.h"
#include "model/speech/speech_files.h"
#include "model/speech/speech_net.h"
#include "model/speech/speech_writer.h"
#include "model/speech/transcript.h"
#include "model/speech/window_reader.h"

namespace ingot {

struct SpeechOptions {
  std::string language;          // code or name; empty: detected in the first window
  bool translates = false;       // to English
  bool with_times = true;        // false: the model writes no times, and a segment is a window
  bool word_times = false;       // also when each word was said
  std::string prompt;            // names, words and style that the model should expect
  std::string hotwords;          // words to expect in each window; read before the prompt and the context
  bool carries_context = false;  // the text of a window is the prompt of the next one
  std::vector<float> temperatures = {0, 0.2f, 0.4f, 0.6f, 0.8f, 1.0f};  // tried in order
  std::optional<float> most_compression = 2.4f;  // a text that compresses better is written again; nothing: no limit
  std::optional<float> least_logprob = -1.0f;    // so is one whose tokens have a lower mean log-probability
  // A window is silent if the probability of silence is higher and its text is not likely enough.
  std::optional<float> most_no_speech = 0.6f;
  double quietest = -60;  // dBFS: where 30 ms are quieter, there is no sound, and no window begins
  bool finds_voice = true;  // nor does one where only steady noise is (voice.h)
  // Windows that are written at once. Above 1: windows end at pauses instead of after whole segments.
  int n_parallel = 1;
  int n_beams = 1;  // of the search for the likeliest text at temperature 0; 1: the likeliest token each time
  uint64_t seed = 0;      // of draws
};

struct SpeechProgress {
  // Called after each window with the segments that it has added, the seconds done, and those of the recording if the
  // file states them. Returns false to stop.
  std::function<bool(std::span<const SpeechSegment> added, double done, std::optional<double> all)> on_window;
};

// What a model can do at once. It takes memory when it is opened.
struct SpeechLimits {
  int n_parallel = 1, n_beams = 1;  // the most of SpeechOptions
};

class SpeechModel {
 public:
  // Throws Error or MemoryError.
  SpeechModel(SpeechFiles files, const BackendOptions& backend, const SpeechLimits& limits = {});

  // Throws Error for a language that the model lacks, for a translation by a model of English alone, for a prompt that
  // is too long, and for what AudioStream refuses. Any thread may call it; windows of several calls take turns.
  Transcript transcribe(AudioStream& audio, const SpeechOptions& options, const SpeechProgress& progress = {});

  // A recording that is transcribed step by step, by one thread at a time.
  class Transcription {
   public:
    Transcription(Transcription&&) noexcept;
    ~Transcription();
    // Writes the next window, or as many as are written at once, or skips a part without sound. False if nothing is
    // left, or if on_window has stopped it. Throws as transcribe().
    bool step();
    Transcript finish();  // what the steps have written

   private:
    friend class SpeechModel;
    struct State;
    explicit Transcription(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
  };
  // The model and the audio must outlive the result. Throws as check().
  Transcription begin(AudioStream& audio, const SpeechOptions& options, const SpeechProgress& progress = {});

  // What is said in a sound that goes on: the likeliest text of its samples, at most a window, without a second try.
  // draft: the tokens of the last guess, which make this one faster. Nothing if another call computes, since a peek
  // does not wait. Throws as transcribe().
  std::optional<SpeechGuess> peek(std::span<const float> samples, const SpeechOptions& options,
                                  std::span<const int32_t> draft = {});

  // Throws Error if the options do not fit the model; before any sound is read.
  void check(const SpeechOptions& options) const;

  const SpeechLimits& limits() const { return limits_; }
  const SpeechConfig& config() const { return files_.config; }
  const SpeechTokens& tokens() const { return files_.tokens; }
  const Tokenizer& tokenizer() const { return *files_.tokenizer; }
  const std::string& container() const { return files_.container; }
  std::string device() const { return net_.backend().description(); }
  size_t allocated_bytes() const { return net_.backend().allocated_bytes(); }
  uint64_t progress() const { return net_.backend().progress(); }  // changes while the model computes

 private:
  struct Call;    // a recording that is transcribed
  struct Attempt;  // a text of a window
  struct Window;   // a part of the recording, and its text

  Call new_call(const SpeechOptions& options) const;  // with a reference to the options
  std::vector<int32_t> before_text(const std::string& text) const;
  size_t most_before() const;  // tokens before the text of a window, without those of the language and the task
  std::vector<int32_t> prompt_of(const Call& call) const;
  void hear(Call& call, std::span<Window> windows, int n_frames = 0);  // n_frames: as in SpeechWriter::hear()
  void write_once(Call& call, std::span<Window* const> windows, float temperature, std::span<const int32_t> draft = {});
  void write_well(Call& call, std::span<Window> windows);
  void silence_noise(const Call& call, std::span<Window* const> windows);
  bool is_poor(const Attempt& attempt, const SpeechOptions& options) const;
  int64_t quiet_before_sound(std::span<const float> samples, const SpeechOptions& options) const;
  bool next_windows(Call& call, WindowReader& reader, std::vector<Window>& windows) const;
  int64_t end_of_window(std::span<const float> samples, const SpeechOptions& options) const;
  int64_t finish_window(Call& call, Window& window);
  void add_word_times(Call& call, const Window& window, size_t first_segment);
  int64_t add_segments(Call& call, const Window& window) const;
  void add_segment(Call& call, const Window& window, std::span<const int32_t> tokens, double start, double end) const;
  std::string text_of(std::span<const int32_t> tokens) const;

  SpeechFiles files_;
  const SpeechLimits limits_;
  SpeechNet net_;
  SpeechWriter writer_;
  FairMutex mutex_;  // of the writer and the net
};

}  // namespace ingot
