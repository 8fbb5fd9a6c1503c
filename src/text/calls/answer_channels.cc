// The parts of AnswerParser for messages in channels (OpenAI's harmony). A message has a header with the channel and an
// optional recipient, and a body up to the marker that ends the body.
//     <|channel|>analysis<|message|>REASONING<|end|>
//     <|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>
//     <|start|>assistant<|channel|>final<|message|>CONTENT<|return|>
// The recipient may be on either side of the channel. Commentary without a recipient is content, because it is meant
// for the user.
#include <fmt/format.h>

#include "base/ascii.h"
#include "base/error.h"
#include "text/calls/answer_parser.h"

namespace ingot {
namespace {

constexpr size_t kMaxHeader = 512;
constexpr std::string_view kStartMark = "<|start|>", kChannelMark = "<|channel|>", kMessageMark = "<|message|>";

// The word after the last `mark` in the header.
std::string word_after(std::string_view header, std::string_view mark) {
  const size_t at = header.rfind(mark);
  if (at == header.npos) return {};
  header.remove_prefix(at + mark.size());
  return std::string(header.substr(0, header.find_first_of(" <\t\r\n")));
}

}  // namespace

void AnswerParser::enter_body(Kind kind) {
  body_ = kind;
  enter(State::kBody);
}

bool AnswerParser::on_channel_plain(char c) {
  if (state_ == State::kBody) {
    if (c > ' ' || c < 0) after_call_ = false;
    text(body_, {&c, 1});
    return true;
  }
  if (state_ == State::kIdle) {
    if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
      markup(1);
      return true;
    }
    enter_body(Kind::kContent);  // text without a header
    return false;
  }
  raw_ += c;
  if (raw_.size() > kMaxHeader) {
    marked_ = true;
    fail();
  }
  return true;
}

void AnswerParser::on_channel_marker(std::string_view marker) {
  if (state_ == State::kHeader) return header_done(marker);
  raw_ += marker;
  if (marker == kStartMark || marker == kChannelMark || marker == "to=") return enter(State::kHeader);
  const bool is_stray = state_ == State::kIdle && !call_due_;
  call_due_ = false;
  flush_markup();
  if (is_stray) warn(fmt::format("{} has no opening marker", marker));
  if (marker == kMessageMark)
    enter_body(Kind::kContent);
  else
    enter(State::kIdle);
}

void AnswerParser::header_done(std::string_view marker) {
  const std::string header = std::exchange(raw_, {});
  raw_ = header + std::string(marker);
  const std::string channel = word_after(header, kChannelMark);
  std::string recipient = word_after(header, "to=");
  marked_ = true;
  if (marker != kMessageMark) {
    fail();
  } else if (!recipient.empty()) {
    if (recipient.starts_with("functions.")) recipient.erase(0, 10);
    if (recipient.empty() || !calls_) return fail();
    name_ = recipient;
    id_.clear();
    block_calls_ = 0;
    call_due_ = true;
    in_envelope_ = false;
    expect({{"{", State::kArgs, true}, {call_end_, State::kNoArgs}});
  } else {
    flush_markup();
    if (channel != "analysis" && channel != "commentary" && channel != "final")
      warn(fmt::format("a message in the unknown channel \"{}\" is treated as content", printable(channel)));
    enter_body(channel == "analysis" ? Kind::kReasoning : Kind::kContent);
  }
}

}  // namespace ingot
