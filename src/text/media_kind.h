// What a prompt may have besides text.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace ingot {

enum class MediaKind : uint8_t { kImage, kSound };
inline constexpr std::array kMediaKinds = {MediaKind::kImage, MediaKind::kSound};

// Of each kind: the type of its parts of content; a private character that stands for it in the text of a template that
// shows none; its names for messages.
struct MediaFacts {
  std::string_view part, mark, name, names;
};
inline constexpr std::array<MediaFacts, kMediaKinds.size()> kMediaFacts = {{
    {.part = "image", .mark = "\xF4\x8F\xBF\xBD", .name = "image", .names = "images"},
    {.part = "audio", .mark = "\xF4\x8F\xBF\xBC", .name = "recording", .names = "recordings"},
}};
constexpr const MediaFacts& facts_of(MediaKind kind) { return kMediaFacts[static_cast<size_t>(kind)]; }

}  // namespace ingot
