// A tiny Whisper model equals transformers: encoder, logits, languages, and whole transcripts, in the three forms of
// files.
#include <gmock/gmock.h>

#include "model/speech/speech_goldens.h"
#include "model/speech/word_times.h"

namespace ingot {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

BackendOptions speech_backend(const std::string& device) {
  return {.device = device, .n_threads = 2, .activations = device == "cuda" ? "f32" : ""};
}

std::vector<std::string> speech_devices() {
  return has_gpu() ? std::vector<std::string>{"ref", "cpu", "cuda"} : std::vector<std::string>{"ref", "cpu"};
}

// The segments of all windows: start, end and tokens.
void expect_transcript(const Transcript& transcript, const nlohmann::json& windows) {
  std::vector<std::tuple<double, double, std::vector<int32_t>>> expected;
  std::vector<std::pair<double, double>> figures;  // of the windows: mean log-probability, probability of silence
  for (const auto& window : windows)
    for (const auto& segment : window["segments"]) {
      const double at = window["at"].get<double>() / kSpeechRate;
      auto tokens = segment[2].get<std::vector<int32_t>>();
      // transformers adds the beginning of the next segment to a window's last one.
      if (tokens.size() > 1 && tokens.back() > 266 && tokens[tokens.size() - 2] > 266) tokens.pop_back();
      const bool has_text = std::ranges::any_of(tokens, [](int32_t id) { return id < 256 && id != 220; });
      if (!has_text) continue;
      expected.emplace_back(at + segment[0].get<double>(), at + segment[1].get<double>(), tokens);
      figures.emplace_back(window["avg_logprob"], window["no_speech_prob"]);
    }
  ASSERT_EQ(transcript.segments.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const SpeechSegment& s = transcript.segments[i];
    EXPECT_NEAR(s.start, std::get<0>(expected[i]), 1e-6) << i;
    EXPECT_NEAR(s.end, std::get<1>(expected[i]), 0.0201) << i;  // transformers may round a window's length down
    EXPECT_EQ(s.tokens, std::get<2>(expected[i])) << i;
    EXPECT_NEAR(s.avg_logprob, figures[i].first, 1e-3) << i;
    EXPECT_NEAR(s.no_speech_prob, figures[i].second, 1e-4) << i;
  }
}

const SpeechOptions kGreedy = {.language = "de", .temperatures = {0}, .most_no_speech = std::nullopt};

Transcript transcript_of(SpeechModel& model, const SpeechOptions& options, size_t n = kGoldenSamples) {
  SampleStream sound(golden_sound(n));
  return model.transcribe(sound, options);
}

TEST(Speech, EncoderAndLogitsEqualThoseOfTransformers) {
  const nlohmann::json goldens = speech_goldens();
  for (const std::string& device : speech_devices()) {
    SCOPED_TRACE(device);
    SpeechFiles files = open_speech_files(kSpeechData.string());
    ASSERT_EQ(files.config.n_samples(), 9600);
    SpeechNet net(files.config, std::move(files.weights), speech_backend(device),
                  {.windows = 2, .heard = 2, .texts = 2});
    const std::vector<float> window = LogMel(8).features(golden_sound(kGoldenSamples), 60);
    std::vector<float> both = LogMel(8).features(golden_sound(7000, 3), 60);  // the other window must not matter
    both.insert(both.end(), window.begin(), window.end());
    const SharedFloats encoded = net.encode(both);
    ASSERT_EQ(encoded.size(), 2u * 30 * 16);
    const std::span<const float> sound = encoded.part(30 * 16, 30 * 16);
    for (size_t i = 0; i < goldens["encoder"].size(); ++i)
      for (size_t k = 0; k < 16; ++k)
        ASSERT_NEAR(sound[7 * i * 16 + k], goldens["encoder"][i][k].get<double>(), 2e-3) << i << ", " << k;

    // All tokens at once beside another sequence, then one by one without the sound.
    const auto prompt = goldens["prompt"].get<std::vector<int32_t>>();
    const std::vector<int32_t> other = {257, 258};
    const std::vector<SpeechStep> steps = {
        {.text = 1, .window = 1, .tokens = other, .sound = encoded.part(0, 30 * 16), .logit_rows = {1}},
        {.text = 0, .tokens = prompt, .sound = sound, .logit_rows = {0, 5}}};
    const auto expect_row = [&](std::span<const float> row, size_t i) {
      ASSERT_EQ(row.size(), 298u);
      for (size_t k = 0; k < row.size(); ++k)
        ASSERT_NEAR(row[k], goldens["logits"][i][k].get<double>(), 5e-3) << i << ", " << k;
    };
    const std::span<const float> rows = net.decode(steps);
    ASSERT_EQ(rows.size(), 3u * 298);
    expect_row(rows.subspan(298, 298), 0);
    expect_row(rows.subspan(2 * 298, 298), 1);
    // Sounds in another order than in memory.
    const std::vector<SpeechStep> swapped = {steps[1], steps[0]};
    const std::span<const float> other_rows = net.decode(swapped);
    expect_row(other_rows.first(298), 0);
    expect_row(other_rows.subspan(298, 298), 1);
    for (size_t i = 0; i < prompt.size(); ++i) {
      const SpeechStep step{.tokens = {&prompt[i], 1}, .position = static_cast<int>(i), .logit_rows = {0}};
      const std::span<const float> row = net.decode({&step, 1});
      if (i == 0 || i == 5) expect_row(row, i == 5);
    }
  }
}

TEST(Speech, TranscriptsEqualThoseOfTransformers) {
  const nlohmann::json goldens = speech_goldens();
  for (const std::string& device : speech_devices()) {
    SCOPED_TRACE(device);
    SpeechModel model(open_speech_files(kSpeechData.string()), speech_backend(device));
    const Transcript transcript = transcript_of(model, kGreedy);
    EXPECT_EQ(transcript.language, "de");
    EXPECT_EQ(transcript.task, "transcribe");
    EXPECT_EQ(transcript.seconds, static_cast<double>(kGoldenSamples) / kSpeechRate);
    expect_transcript(transcript, goldens["with_times"]);
    SpeechOptions options = kGreedy;
    options.with_times = false;
    expect_transcript(transcript_of(model, options), goldens["without_times"]);
    options = kGreedy, options.translates = true, options.language = "English";
    expect_transcript(transcript_of(model, options), goldens["translation"]);
  }
}

TEST(Speech, WordsAreAlignedAsOpenAiDoesIt) {
  const nlohmann::json golden = speech_goldens()["alignment"];
  const auto tokens = golden["tokens"].get<std::vector<int32_t>>();
  const int n_rows = golden["n_rows"], n = static_cast<int>(tokens.size());
  for (const std::string& device : speech_devices()) {
    SCOPED_TRACE(device);
    SpeechFiles files = open_speech_files(kSpeechData.string());
    ASSERT_EQ(files.alignment.size(), 3u);
    SpeechNet net(files.config, std::move(files.weights), speech_backend(device), {}, files.alignment);
    const SharedFloats sound = net.encode(LogMel(8).features(golden_sound(kGoldenSamples), 60));
    const std::vector<float> shares = net.align(tokens, sound.all(), n_rows);
    ASSERT_EQ(shares.size(), static_cast<size_t>(3 * n * n_rows));
    for (int head = 0; head < 3; ++head)
      for (int row = 0; row < n_rows; ++row)
        ASSERT_NEAR(shares[static_cast<size_t>((head * n + 4) * n_rows + row)],
                    golden["shares"][static_cast<size_t>(head)][static_cast<size_t>(row)].get<double>(), 1e-3);
    EXPECT_EQ(token_starts(shares, 3, n, n_rows, 3, n - 4), golden["starts"].get<std::vector<int>>());
  }
}

TEST(Speech, TimesOfWords) {
  SpeechModel model(open_speech_files(kSpeechData.string()), speech_backend("cpu"));
  SpeechOptions options = kGreedy;
  options.word_times = true;
  const Transcript with = transcript_of(model, options), without = transcript_of(model, kGreedy);
  ASSERT_EQ(with.segments.size(), without.segments.size());
  for (size_t i = 0; i < with.segments.size(); ++i) {
    const SpeechSegment& s = with.segments[i];
    EXPECT_EQ(s.tokens, without.segments[i].tokens);
    ASSERT_FALSE(s.words.empty());
    std::string text;
    double last = 0;
    for (const SpeechWord& word : s.words) {
      EXPECT_LE(last, word.start);
      EXPECT_LE(word.start, word.end);
      EXPECT_GT(word.probability, 0);
      EXPECT_LE(word.probability, 1);
      last = word.start, text += word.text;
    }
    EXPECT_EQ(text, s.text);
  }
}

TEST(Words, AreCutAtSpacesAndSigns) {
  const SpeechFiles files = open_speech_files(kSpeechData.string());
  const auto words = [&](const std::string& text, const char* language) {
    const std::vector<int32_t> tokens = files.tokenizer->encode(text, {.add_special = false});
    std::string list;
    size_t n = 0;
    for (const WordTokens& word : words_of(*files.tokenizer, tokens, language)) {
      list += word.text + "|";
      n += word.n_tokens;
    }
    EXPECT_EQ(n, tokens.size());
    return list;
  };
  EXPECT_EQ(words(" Well, \u00fcber!", "de"), " Well,| \u00fcber!|");
  EXPECT_EQ(words(" stop it.", "en"), " stop| it.|");
  EXPECT_EQ(words("\u4f60\u597d\u3002", "zh"), "\u4f60|\u597d\u3002|");
  EXPECT_EQ(words("", "en"), "");
}

TEST(Speech, TheLanguageIsDetected) {
  SpeechModel model(open_speech_files(kSpeechData.string()), speech_backend("cpu"));
  const std::string golden = speech_goldens()["language"];  // "<|de|>"
  SpeechOptions options = kGreedy;
  options.language = "";
  EXPECT_EQ("<|" + transcript_of(model, options, 9600).language + "|>", golden);
}

TEST(Speech, APromptComesBefore) {
  SpeechModel model(open_speech_files(kSpeechData.string()), speech_backend("cpu"));
  SpeechOptions options = kGreedy;
  options.prompt = speech_goldens()["prompt_text"];
  const auto expected = speech_goldens()["after_prompt"].get<std::vector<int32_t>>();
  const auto written_first = [&](const SpeechOptions& with) {  // in the first window
    SampleStream sound(golden_sound(kGoldenSamples));
    std::vector<int32_t> written;
    model.transcribe(sound, with,
                     {.on_window = [&](std::span<const SpeechSegment> added, double, std::optional<double>) {
                       for (const SpeechSegment& s : added)
                         written.insert(written.end(), s.tokens.begin(), s.tokens.end());
                       return false;
                     }});
    return written;
  };
  const std::vector<int32_t> written = written_first(options);
  ASSERT_FALSE(written.empty());
  ASSERT_LE(written.size(), expected.size());
  EXPECT_TRUE(std::equal(written.begin(), written.end(), expected.begin()));
  options.prompt = "another";
  EXPECT_NE(written_first(options), written);
}

// Hotwords stand before the prompt, and a long prompt does not displace them.
TEST(Speech, HotwordsComeBefore) {
  SpeechModel model(open_speech_files(kSpeechData.string()), speech_backend("cpu"));
  const std::string golden = speech_goldens()["prompt_text"];
  const auto written = [&](const std::string& hotwords, const std::string& prompt) {
    SpeechOptions options = kGreedy;
    options.hotwords = hotwords, options.prompt = prompt;
    std::vector<int32_t> tokens;
    for (const SpeechSegment& s : transcript_of(model, options, kGoldenSamples).segments)
      tokens.insert(tokens.end(), s.tokens.begin(), s.tokens.end());
    return tokens;
  };
  EXPECT_EQ(written(golden, ""), written("", golden));  // which is what transformers makes of it
  EXPECT_NE(written(golden, ""), written("", ""));
  EXPECT_EQ(written("ab", "cd"), written("", "ab cd"));
  EXPECT_NE(written("ab", "cd"), written("", "cd ab"));
  const std::string long_prompt(40, 'e');
  EXPECT_EQ(written("ab", long_prompt), written("", "ab" + long_prompt.substr(0, 12)));  // 15 tokens
  EXPECT_NO_THROW(written(std::string(14, 'f'), ""));
  EXPECT_THROW(written(std::string(15, 'f'), ""), Error);
}

// A sound that does not fill its window and whose text is not sure is heard again, repeated.
TEST(Speech, ShortNoiseIsSilent) {
  SpeechModel model(open_speech_files(kSpeechData.string()), speech_backend("cpu"));
  SpeechOptions options = kGreedy;
  const auto n_segments = [&](size_t n) { return transcript_of(model, options, n).segments.size(); };
  const Transcript sure = transcript_of(model, options, 8000);
  ASSERT_FALSE(sure.segments.empty());
  options.most_no_speech = 2 * sure.segments[0].no_speech_prob, options.least_logprob = -0.01f;
  EXPECT_EQ(n_segments(8000), 0u);  // the repeated sound is as unlikely
  options.least_logprob = -100.0f;
  EXPECT_GT(n_segments(8000), 0u);
  options.least_logprob = -0.01f, options.most_no_speech = 20 * sure.segments[0].no_speech_prob;
  EXPECT_GT(n_segments(8000), 0u);
  options.most_no_speech = std::nullopt;
  EXPECT_GT(n_segments(8000), 0u);
}

TEST(Speech, APeekIsTheTextOfAWindow) {
  SpeechModel model(open_speech_files(kSpeechData.string()), speech_backend("cpu"));
  SpeechOptions options = kGreedy;
  options.most_compression = options.least_logprob = std::nullopt;
  options.with_times = false;  // a transcript would read text behind the last time again, in a next window
  const std::vector<float> samples = golden_sound(8000);
  const auto text_of = [](const std::optional<SpeechGuess>& guess) {
    std::string text;
    for (const SpeechPiece& piece : guess->pieces) {
      EXPECT_GT(piece.probability, 0);
      EXPECT_LE(piece.probability, 1);
      text += piece.text;
    }
    return trimmed(text);
  };
  EXPECT_EQ(text_of(model.peek(samples, options)), transcript_of(model, options, 8000).text());
  options.most_compression = 0.0f;
  EXPECT_TRUE(model.peek(samples, options)->pieces.empty());  // it repeats itself
  options = kGreedy, options.language = "klingon";
  EXPECT_THROW(model.peek(samples, options), Error);
}

// The steps that a draft saves are seen in the count of the backend's work.
TEST(Speech, ADraftChangesNoText) {
  SpeechModel model(open_speech_files(kSpeechData.string()), speech_backend("ref"));
  const std::vector<float> samples = golden_sound(8000);
  const auto steps_of = [&](std::span<const int32_t> draft, const std::vector<int32_t>& expected) {
    const uint64_t before = model.progress();
    EXPECT_EQ(model.peek(samples, kGreedy, draft)->tokens, expected);
    return model.progress() - before;
  };
  const std::vector<int32_t> tokens = model.peek(samples, kGreedy)->tokens;
  ASSERT_GT(tokens.size(), 12u);
  const uint64_t without = steps_of({}, tokens), with = steps_of(tokens, tokens);
  EXPECT_LT(with, without / 2);
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::vector<int32_t> wrong = tokens;
    wrong[i] = tokens[i] == 30 ? 31 : 30;
    steps_of(wrong, tokens);
    steps_of(std::span(tokens).first(i), tokens);
  }
  std::vector<int32_t> longer = tokens;
  longer.resize(1000, 30);
  steps_of(longer, tokens);
}

TEST(Speech, OtherContainersHoldTheSame) {
  const nlohmann::json goldens = speech_goldens();
  const SpeechForms forms;
  const SpeechFolder folder;
  fs::create_directories(folder.path / "ct2");
  forms.write_ct2(folder.path / "ct2", false);
  forms.write_ggml(folder.path / "ggml-tiny.bin");
  for (const auto& [path, container] : {std::pair{folder.path / "ct2", "CTranslate2"},
                                        {folder.path / "ct2" / "model.bin", "CTranslate2"},
                                        {folder.path / "ggml-tiny.bin", "ggml"}}) {
    SCOPED_TRACE(path);
    EXPECT_EQ(is_speech_model(path.string()), path.filename() != "model.bin");
    SpeechFiles files = open_speech_files(path.string());
    EXPECT_EQ(files.container, container);
    files.suppressed = {1, 2, 7, 60, 61}, files.latest_start = 10;  // which ggml's files do not say
    SpeechModel model(std::move(files), speech_backend("cpu"));
    expect_transcript(transcript_of(model, kGreedy), goldens["with_times"]);
  }
  EXPECT_TRUE(is_speech_model(kSpeechData.string()));
  EXPECT_FALSE(is_speech_model((kModels / "qwen3.gguf").string()));
  EXPECT_FALSE(is_speech_model((kData / "hf" / "llama").string()));
}

TEST(Speech, IntegersOfCTranslate2AreNearTheFloats) {
  const SpeechFolder folder;
  SpeechForms().write_ct2(folder.path, true);
  SpeechFiles whole = open_speech_files(kSpeechData.string()), coded = open_speech_files(folder.path.string());
  for (const char* name : {"model.encoder.layers.0.self_attn.v_proj.weight", "model.decoder.layers.1.fc2.weight",
                           "model.decoder.layers.1.encoder_attn.k_proj.weight"}) {
    SCOPED_TRACE(name);
    HostTensor a, b;
    ASSERT_TRUE(whole.weights->find_shape(name, 0, 0, a) && coded.weights->find_shape(name, 0, 0, b));
    ASSERT_EQ(a.n_out, b.n_out);
    ASSERT_EQ(a.n_in, b.n_in);
    ASSERT_TRUE(whole.weights->find(name, a.n_out, a.n_in, a) && coded.weights->find(name, a.n_out, a.n_in, b));
    const auto n = static_cast<size_t>(a.n_in);
    std::vector<float> x(n), y(n);
    for (int64_t row = 0; row < a.n_out; ++row) {
      decode_row(a.format, a.data + row * static_cast<int64_t>(row_bytes(a.format, a.n_in)), x.data(), a.n_in);
      decode_row(b.format, b.data + row * static_cast<int64_t>(row_bytes(b.format, b.n_in)), y.data(), b.n_in);
      float amax = 0;
      for (const float value : x) amax = std::max(amax, std::abs(value));
      for (size_t i = 0; i < n; ++i) ASSERT_NEAR(y[i], x[i], 0.501 * amax / 127) << row << ", " << i;
    }
  }
}

TEST(Speech, MatricesAreNarrowedOnlyWithoutLossAndQuantizedOnRequest) {
  const SpeechFolder folder;
  fs::copy(kSpeechData, folder.path);
  Safetensors stored = Safetensors::open_file((kSpeechData / "model.safetensors").string());
  // The same model in F32, of which one matrix has a number that F16 lacks.
  const std::string odd = "model.decoder.layers.0.fc1.weight", even = "model.decoder.layers.0.fc2.weight";
  std::string header = "{", data;
  for (const SafeTensor& t : stored.tensors()) {
    const auto bytes = stored.data(t);
    const size_t begin = data.size();
    for (size_t i = 0; i < bytes.size(); i += 2) {
      uint16_t half;
      std::memcpy(&half, bytes.data() + i, 2);
      data += little(t.name == odd && i == 6 ? 0.1f : float_from_f16(half));
    }
    std::vector<uint64_t> shape(t.shape.begin(), t.shape.begin() + t.n_dims);
    header += fmt::format(R"({}"{}":{{"dtype":"F32","shape":[{}],"data_offsets":[{},{}]}})", begin == 0 ? "" : ",",
                          t.name, fmt::join(shape, ","), begin, data.size());
  }
  header += "}";
  write_text(folder.path / "model.safetensors", little(static_cast<uint64_t>(header.size())) + header + data);
  const auto format_of = [&](const std::string& name, const std::string& quantize) {
    SpeechFiles files = open_speech_files(folder.path.string(), quantize);
    HostTensor host;
    EXPECT_TRUE(files.weights->find_shape(name, 0, 0, host));
    EXPECT_TRUE(files.weights->find(name, host.n_out, host.n_in, host));
    return host.format;
  };
  EXPECT_EQ(format_of(even, ""), Format::F16);
  EXPECT_EQ(format_of(odd, ""), Format::F32);
  EXPECT_EQ(format_of("model.decoder.layer_norm.weight", ""), Format::F32);
  EXPECT_EQ(format_of(even, "q8_0"), Format::F16);  // its rows are no whole blocks
  SpeechModel model(open_speech_files(folder.path.string()), speech_backend("cpu"));
  EXPECT_FALSE(transcript_of(model, kGreedy, 9600).segments.empty());
  EXPECT_THROW(open_speech_files(folder.path.string(), "f16"), UsageError);
  EXPECT_THROW(open_speech_files(folder.path.string(), "nonsense"), UsageError);
}

TEST(Speech, PoorTextsAreWrittenAgain) {
  SpeechModel model(open_speech_files(kSpeechData.string()), speech_backend("cpu"));
  SpeechOptions options = kGreedy;
  options.least_logprob = options.most_compression = std::nullopt;
  const auto of = [&](std::vector<float> temperatures) {
    options.temperatures = std::move(temperatures);
    return transcript_of(model, options, 9600).segments.at(0);
  };
  const SpeechSegment cold = of({0}), hot = of({1.5f});
  EXPECT_EQ(of({1.5f}).tokens, hot.tokens);  // of the same seed
  options.seed = 5;
  EXPECT_NE(of({1.5f}).tokens, hot.tokens);
  ASSERT_GT(cold.avg_logprob, hot.avg_logprob);
  options.least_logprob = 0.0f;  // no text is likely enough: the likeliest one is kept
  EXPECT_EQ(of({1.5f, 0}).tokens, cold.tokens);
  EXPECT_EQ(of({0, 1.5f}).tokens, cold.tokens);
  // Whichever repeats itself less is kept, even if it is less likely; and the likeliest one if all repeat themselves.
  options.most_compression = std::min(cold.compression_ratio, of({1.5f}).compression_ratio) - 0.01f;
  EXPECT_EQ(of({1.5f, 0}).temperature, 0.0f);
  *options.most_compression += 0.02f;
  const bool hot_repeats = of({1.5f}).compression_ratio > *options.most_compression;
  ASSERT_NE(hot_repeats, cold.compression_ratio > *options.most_compression);
  EXPECT_EQ(of({1.5f, 0}).temperature, hot_repeats ? 0.0f : 1.5f);
  options.least_logprob = std::nullopt;  // a text that does not repeat itself looks right, so no other one is written
  EXPECT_EQ(of({hot_repeats ? 0.0f : 1.5f, 5.0f}).temperature, hot_repeats ? 0.0f : 1.5f);
}

TEST(Speech, SilentWindowsHaveNoText) {
  SpeechModel model(open_speech_files(kSpeechData.string()), speech_backend("cpu"));
  SpeechOptions options = kGreedy;
  options.least_logprob = 0.0f, options.most_no_speech = 0.0f;  // every window looks silent
  const Transcript transcript = transcript_of(model, options);
  EXPECT_TRUE(transcript.segments.empty());
  EXPECT_EQ(transcript.seconds, static_cast<double>(kGoldenSamples) / kSpeechRate);
}

TEST(Speech, QuietWindowsAreNotDecoded) {
  SpeechModel model(open_speech_files(kSpeechData.string()), speech_backend("cpu"));
  std::vector<float> samples(2 * 9600, 1e-4f);  // two quiet windows, then the sound
  const std::vector<float> loud = golden_sound(kGoldenSamples);
  samples.insert(samples.end(), loud.begin(), loud.end());
  SampleStream sound(samples);
  Transcript transcript = model.transcribe(sound, kGreedy);
  for (SpeechSegment& s : transcript.segments) s.start -= 1.2, s.end -= 1.2;
  expect_transcript(transcript, speech_goldens()["with_times"]);
  SpeechOptions options = kGreedy;
  options.quietest = 0;
  EXPECT_TRUE(transcript_of(model, options).segments.empty());
}

TEST(Speech, WindowsBeginWhereThereIsSound) {
  SpeechModel model(open_speech_files(kSpeechData.string()), speech_backend("cpu"));
  std::vector<float> samples(5000);
  const std::vector<float> loud = golden_sound(kGoldenSamples);
  samples.insert(samples.end(), loud.begin(), loud.end());
  // 4,800 samples are quiet pieces of 30 ms; a little of them is kept, and times are steps of 320 samples.
  constexpr int kSkipped = 4480;
  SampleStream whole(samples), rest(std::vector<float>(samples.begin() + kSkipped, samples.end()));
  SpeechOptions options = kGreedy;
  options.quietest = -200;
  const Transcript expected = model.transcribe(rest, options), found = model.transcribe(whole, kGreedy);
  ASSERT_FALSE(expected.segments.empty());
  ASSERT_EQ(found.segments.size(), expected.segments.size());
  for (size_t i = 0; i < found.segments.size(); ++i) {
    EXPECT_EQ(found.segments[i].tokens, expected.segments[i].tokens);
    EXPECT_NEAR(found.segments[i].start, expected.segments[i].start + kSkipped / 16000.0, 1e-9);
  }
}

TEST(Speech, CallersSeeEachWindowAndMayStop) {
  SpeechModel model(open_speech_files(kSpeechData.string()), speech_backend("cpu"));
  std::vector<double> done;
  size_t n_segments = 0;
  SampleStream sound(golden_sound(kGoldenSamples));
  const Transcript transcript = model.transcribe(
      sound, kGreedy,
      {.on_window = [&](std::span<const SpeechSegment> added, double seconds, std::optional<double> all) {
        EXPECT_EQ(*all, static_cast<double>(kGoldenSamples) / kSpeechRate);
        done.push_back(seconds), n_segments += added.size();
        return done.size() < 2;
      }});
  EXPECT_EQ(done.size(), 2u);
  EXPECT_EQ(n_segments, transcript.segments.size());
  EXPECT_LT(transcript.seconds, 2.0);
}

TEST(Speech, ContextIsCarriedOn) {
  SpeechModel model(open_speech_files(kSpeechData.string()), speech_backend("cpu"));
  SpeechOptions options = kGreedy;
  options.carries_context = true;
  const Transcript with = transcript_of(model, options), without = transcript_of(model, kGreedy);
  ASSERT_GT(with.segments.size(), 1u);
  EXPECT_EQ(with.segments[0].tokens, without.segments[0].tokens);
  EXPECT_NE(with.segments[1].avg_logprob, without.segments[1].avg_logprob);
}

std::string options_refused(SpeechModel& model, const SpeechOptions& options) {
  try {
    transcript_of(model, options, 100);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Speech, WrongOptionsAreNamed) {
  SpeechModel model(open_speech_files(kSpeechData.string()), speech_backend("ref"));
  SpeechOptions options = kGreedy;
  options.language = "klingon";
  EXPECT_THAT(options_refused(model, options), HasSubstr("does not know the language klingon"));
  options.language = "fr";  // the tiny model has three languages
  EXPECT_THAT(options_refused(model, options), HasSubstr("does not know the language fr"));
  options = kGreedy, options.temperatures = {-1};
  EXPECT_THAT(options_refused(model, options), HasSubstr("temperature -1 is out of range"));
  SampleStream nothing({});
  EXPECT_THROW(model.transcribe(nothing, kGreedy), Error);
}

std::string opening_refused(const fs::path& path) {
  try {
    SpeechFiles files = open_speech_files(path.string());
    SpeechModel model(std::move(files), speech_backend("ref"));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Speech, DamagedDirectoriesAreRefused) {
  EXPECT_THAT(opening_refused("/nowhere/at/all"), HasSubstr("no such file or directory"));
  EXPECT_THAT(opening_refused(kModels / "qwen3.gguf"), HasSubstr("not one of whisper.cpp's files: it is a GGUF file"));
  EXPECT_THAT(opening_refused(kData / "hf" / "llama"), HasSubstr("expected whisper"));
  const SpeechFolder folder;
  const auto copy = [&] {
    fs::remove_all(folder.path);
    fs::copy(kSpeechData, folder.path);
  };
  const auto change = [&](const char* file, const std::string& key, const nlohmann::json& value) {
    copy();
    auto json = nlohmann::json::parse(read_file((folder.path / file).string()));
    json[key] = value;
    write_text(folder.path / file, json.dump());
    return opening_refused(folder.path);
  };
  EXPECT_THAT(change("config.json", "d_model", 0), HasSubstr("d_model"));
  EXPECT_THAT(change("config.json", "d_model", 24), HasSubstr("expected [24, 24]"));
  EXPECT_THAT(change("config.json", "decoder_attention_heads", 3), HasSubstr("3 heads do not divide 16"));
  EXPECT_THAT(change("config.json", "activation_function", "relu"), HasSubstr("expected gelu"));
  EXPECT_THAT(change("config.json", "vocab_size", 268), HasSubstr("too few for times"));
  EXPECT_THAT(change("config.json", "decoder_layers", 3), HasSubstr("'model.decoder.layers.2."));
  EXPECT_THAT(change("tokenizer.json", "added_tokens", nlohmann::json::array()), HasSubstr("lacks the token"));
  copy();
  fs::remove(folder.path / "tokenizer.json");
  EXPECT_THAT(opening_refused(folder.path), HasSubstr("tokenizer.json is missing"));
}

}  // namespace
}  // namespace ingot
