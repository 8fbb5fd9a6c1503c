#include "cli/commands/serve_media.h"

#include <CLI/CLI.hpp>

namespace ingot {

void add_media_source_options(CLI::App& command, MediaPolicy& media) {
  command.add_flag("--image-urls", media.fetches_urls,
                   "fetch images and recordings from http and https URLs in requests; only from public addresses");
  command
      .add_option("--image-dir", media.folder,
                  "folder below which file: URLs in requests may name images and recordings")
      ->check(CLI::ExistingDirectory);
  command.add_option("--image-count", media.max_files, "maximum number of images and recordings of a request")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command
      .add_option(
          "--image-queue", media.max_queue,
          "number of requests with images or recordings that may wait or be prepared before further ones get 429")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
}

void add_audio_options(CLI::App& command, AudioLimits& audio) {
  command.add_option("--audio-max-seconds", audio.max_seconds, "maximum length of a recording in requests")
      ->check(CLI::Range(1.0, 1e7))
      ->capture_default_str();
}

}  // namespace ingot
