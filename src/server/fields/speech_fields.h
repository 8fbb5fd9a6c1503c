// The fields of requests with a recording, which are a form: OpenAI's /v1/audio/transcriptions and translations, and
// whisper.cpp's /inference.
#pragma once
#include "model/speech/speech_model.h"
#include "model/speech/transcript_text.h"
#include "server/answers/api_call.h"

namespace ingot {

// A form becomes an object of texts. Of the part that is a file, `file` gets the bytes and the object gets the name.
// Throws ApiError.
JsonValue form_as_json(const HttpRequest& request, std::string_view body, std::string_view& file);

struct SpeechRequest {
  SpeechOptions options;
  std::string format;  // "json", "text", "srt", "vtt" or "verbose_json"
  bool streams = false;
};

// Throws ApiError naming the field. translates: the route is for translations.
SpeechRequest read_speech_request(const ApiCall& call, bool translates);

}  // namespace ingot
