// Turns a conversation into token ids. The template renders the conversation. Only text that the template itself writes
// can become control tokens. All text of the request stays text, even "<|im_end|>". If the model needs a BOS and the
// template writes none, encode_chat adds the BOS.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "text/chat.h"
#include "text/tokenizers/tokenizer.h"

namespace ingot {

// Where the prompt ends. kAnswer: at the start of a new answer. kMessage: after the end of the last message.
// kOpenMessage: before the end marker of the last message, which must be the assistant's; the model continues this
// message.
enum class ChatEnd { kAnswer, kMessage, kOpenMessage };

// messages: [{"role": ..., "content": ...}, ...]. Throws Error for messages that the template refuses.
std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                 const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                                 const nlohmann::ordered_json& variables, ChatEnd end = ChatEnd::kAnswer);

}  // namespace ingot
