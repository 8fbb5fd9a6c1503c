// A conversation becomes token ids: rendered by the template, then tokenized so that only the template can make control
// tokens. What a user writes stays text, "<|im_end|>" too, wherever in the request it stands. A model that wants a BOS
// gets one when its template writes none.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "text/chat.h"
#include "text/tokenizers/tokenizer.h"

namespace ingot {

// What the text ends with: where an answer begins, the last message with its end, or the last message (the assistant's)
// before its end, for the model to go on with it.
enum class ChatEnd { kAnswer, kMessage, kOpenMessage };

// messages: [{"role": ..., "content": ...}, ...]. Throws Error for what the template refuses.
std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                 const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                                 const nlohmann::ordered_json& variables, ChatEnd end = ChatEnd::kAnswer);

}  // namespace ingot
