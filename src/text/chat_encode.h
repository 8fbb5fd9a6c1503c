// Turns a conversation into token ids. The template renders the conversation. Only text that the template itself writes
// can become control tokens. All text of the request stays text, even "<|im_end|>". If the model needs a BOS and the
// template writes none, encode_chat adds the BOS.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat.h"
#include "text/tokenizers/tokenizer.h"

namespace ingot {

// Where the prompt ends. kAnswer: at the start of a new answer. kMessage: after the end of the last message.
// kOpenMessage: before the end marker of the last message, which must be the assistant's; the model continues this
// message.
enum class ChatEnd { kAnswer, kMessage, kOpenMessage };

// A rendered conversation before it becomes tokens.
struct RenderedChat {
  std::string text;
  std::vector<size_t> quoted;  // ascending offsets of bytes at which no control token begins

  // Replaces text[at, at + n) by text that may spell control tokens.
  void replace(size_t at, size_t n, std::string_view by);
  // The next place at or after `from` where the text spells this control token, not quoted; npos if there is none.
  size_t find(std::string_view token, size_t from) const;
};

// messages: [{"role": ..., "content": ...}, ...]. Throws Error for messages that the template refuses.
std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                 const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                                 const nlohmann::ordered_json& variables, ChatEnd end = ChatEnd::kAnswer);

// The two halves of encode_chat. Code that replaces placeholders of images and recordings
// changes the text between them.
RenderedChat render_chat(const Tokenizer& tokenizer, const ChatTemplate& chat, const nlohmann::ordered_json& messages,
                         const nlohmann::ordered_json& tools, const nlohmann::ordered_json& variables,
                         ChatEnd end = ChatEnd::kAnswer);
std::vector<int32_t> encode_rendered(const Tokenizer& tokenizer, const RenderedChat& chat);

}  // namespace ingot
