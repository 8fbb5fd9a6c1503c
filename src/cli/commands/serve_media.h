// The flags of ingot serve about images and recordings in requests.
#pragma once
#include "io/audio/decode.h"
#include "server/requests/media_source.h"

namespace CLI {
class App;
}

namespace ingot {

void add_media_source_options(CLI::App& command, MediaPolicy& media);
void add_audio_options(CLI::App& command, AudioLimits& audio);

}  // namespace ingot
