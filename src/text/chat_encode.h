// Turns a conversation into token ids. The template renders it, and only text of the template becomes control tokens.
// The text of a user stays text anywhere in the request, even "<|im_end|>". If a model needs a BOS and its template
// writes none, one is added.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "text/chat.h"
#include "text/tokenizers/tokenizer.h"

namespace ingot {

// How the text ends: where an answer begins (kAnswer), after the last message and its end (kMessage), or before the end
// of the last message, which is the assistant's, so that the model continues it (kOpenMessage).
enum class ChatEnd { kAnswer, kMessage, kOpenMessage };

// messages: [{"role": ..., "content": ...}, ...]. Throws Error for messages that the template refuses.
std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                 const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                                 const nlohmann::ordered_json& variables, ChatEnd end = ChatEnd::kAnswer);

}  // namespace ingot
