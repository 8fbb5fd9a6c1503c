// Writes the seeds of the fuzzer of /v1/realtime: frames, and sessions.
#include <cstdio>
#include <filesystem>
#include <fstream>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: seeds_realtime FOLDER\n", stderr);
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  std::filesystem::create_directories(folder);
  const auto write = [&](const std::string& name, char kind, const std::string& bytes) {
    std::ofstream(folder / name, std::ios::binary) << kind << bytes;
  };
  const auto frame = [](int first, const std::string& payload) {  // with a mask of zeros
    std::string out(1, static_cast<char>(first));
    if (payload.size() < 126) {
      out += static_cast<char>(0x80 | payload.size());
    } else {
      out += static_cast<char>(0x80 | 126);
      out += static_cast<char>(payload.size() >> 8), out += static_cast<char>(payload.size());
    }
    return out + std::string(4, '\0') + payload;
  };
  write("frames", '\0',
        frame(0x81, "{\"type\": \"x\"}") + frame(0x01, "half") + frame(0x89, "ping") + frame(0x80, "half") +
            frame(0x82, std::string(200, 'b')) + frame(0x88, std::string("\x03\xe8", 2)));
  const std::string update =
      R"({"type":"session.update","event_id":"e","session":{"type":"transcription","audio":{"input":{"format":)"
      R"({"type":"audio/pcm","rate":24000},"transcription":{"model":"x","language":"de","prompt":"a"},)";
  const std::string turns =
      R"("turn_detection":{"type":"server_vad","threshold":0.5,"prefix_padding_ms":0,"silence_duration_ms":200}}}}})";
  const std::string commit = "{\"type\":\"input_audio_buffer.commit\"}\n",
                    clear = "{\"type\":\"input_audio_buffer.clear\"}\n";
  write("turns", '\1', update + turns + "\n_20\n~20\n~15\n~15\n_30\n~40\n" + commit + "~40\n_40\n");
  write("commits", '\1', update + "\"turn_detection\":null}}}}\n~50\n" + commit + "~10\n" + clear + commit);
  write("beta", '\1',
        R"({"type":"transcription_session.update","session":{"input_audio_format":"pcm16",)"
        R"("input_audio_transcription":{"model":"x"},"turn_detection":null}})"
        "\n{\"type\":\"input_audio_buffer.append\",\"audio\":\"AAAAAAAA\"}\n~30\n" +
            commit + clear + "[1]\n{}\n\xff\n");
}
