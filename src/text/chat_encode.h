// A conversation becomes token ids: rendered by the template, then tokenized so that only the template can make control
// tokens. What a user writes stays text, "<|im_end|>" too, wherever in the request it stands. A model that wants a BOS
// gets one when its template writes none.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "text/chat.h"
#include "text/tokenizer.h"

namespace ingot {

// messages: [{"role": ..., "content": ...}, ...]. Throws Error for what the template refuses.
std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                 const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                                 const nlohmann::ordered_json& variables);

}  // namespace ingot
