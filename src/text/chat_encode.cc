#include "text/chat_encode.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

// The mark: U+10FFFF, a noncharacter. Texts do not contain it, and templates copy it unchanged. Before rendering, a
// mark is inserted in front of each byte of the request's text at which a control token must not begin. The marks are
// removed after rendering.
constexpr std::string_view kMark = "\xF4\x8F\xBF\xBF";

// U+10FFFE, another noncharacter: marks where the text of an open message ends.
constexpr std::string_view kEnd = "\xF4\x8F\xBF\xBE";

bool is_word(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-'; });
}

void take_out(std::string& text, std::string_view what) {
  size_t at = text.find(what), done = 0;
  if (at == std::string::npos) return;
  std::string out;
  for (; at != std::string::npos; at = text.find(what, done)) {
    out.append(text, done, at - done);
    done = at + what.size();
  }
  text = out.append(text, done);
}

// Replaces each member's name with the name from change(name, value), which may also change the value. Members are
// appended without a search for equal names, because ordered_json would search for each one in turn. If two names
// become equal, templates see the later member.
template <class Change>
void change_members(Json& object, Change change) {
  Json::object_t changed;
  auto& members = static_cast<Json::object_t::Container&>(changed);
  for (auto& [name, value] : object.get_ref<Json::object_t&>()) {
    std::string key = name;
    change(key, value);
    members.emplace_back(std::move(key), std::move(value));
  }
  object = std::move(changed);
}

// Removes the marks from all texts in a value, including names of members, as the user wrote them.
void take_marks_out(Json& json) {
  if (json.is_string()) take_out(json.get_ref<std::string&>(), kMark);
  if (json.is_array())
    for (Json& item : json) take_marks_out(item);
  if (!json.is_object()) return;
  change_members(json, [](std::string& name, Json& value) {
    take_out(name, kMark);
    take_marks_out(value);
  });
}

// The user's own mark would be an image or a recording.
void take_media_marks_out(Json& json, MediaKind kind) {
  if (json.is_string()) take_out(json.get_ref<std::string&>(), facts_of(kind).mark);
  if (json.is_structured())
    for (Json& item : json) take_media_marks_out(item, kind);
}

// Puts marks into all texts of a request at places that spell control tokens.
class Marker {
 public:
  // also: texts that are to be marked like control tokens; empty ones do not count.
  Marker(const Tokenizer& tokenizer, std::vector<std::string_view> also) {
    std::vector<std::pair<std::string_view, int32_t>> names;
    for (int32_t id = 0; id < tokenizer.n_vocab(); ++id)
      if (tokenizer.is_special(id) && !tokenizer.token_text(id).empty())
        std::erase(also, names.emplace_back(tokenizer.token_text(id), id).first);
    for (const std::string_view text : also)
      if (!text.empty()) names.emplace_back(text, 0);
    for (const auto& [name, id] : names) {
      if (is_word(name.substr(0, 1)) || name.size() > AddedTokens::kMaxBytes) continue;
      names_.push_back(name);
      longest_name_ = std::max(longest_name_, name.size());
    }
    std::sort(names_.begin(), names_.end());
    tokens_ = AddedTokens(std::move(names));
  }

  void mark(Json& json) const {
    if (json.is_string()) {
      mark(json.get_ref<std::string&>());
    } else if (json.is_array()) {
      for (Json& item : json) mark(item);
    } else if (json.is_object()) {
      mark_object(json);
    }
  }

 private:
  // Names of members come from the user too: the arguments of a call, the parameters of a tool.
  void mark_object(Json& object) const {
    change_members(object, [&](std::string& name, Json& value) {
      // Words of the protocol stay unmarked, because templates compare and print them unchanged, often as part of a
      // control token: <|user|>.
      const bool is_protocol =
          (name == "role" || name == "type") && value.is_string() && is_word(value.get_ref<std::string&>());
      if (!is_protocol) mark(value);
      mark(name);
    });
  }

  void mark(std::string& text) const {
    take_out(text, kMark);
    std::string out;
    size_t done = 0;
    auto mark_at = [&](size_t at) {
      out.append(text, done, at - done).append(kMark);
      done = at;
    };
    for (size_t at = 0;;) {
      const AddedTokens::Match match = tokens_.find(text, at);
      if (match.id < 0) break;
      mark_at(match.begin);
      at = match.begin + 1;
    }
    if (const size_t begin = name_begun(text); begin < text.size() && begin >= done) mark_at(begin);
    if (done > 0 || !out.empty()) text = out + text.substr(done);
  }

  // The position of a control token that the end of the text cuts off; text.size() if there is none. A template may
  // join two texts, which would complete such a token.
  size_t name_begun(std::string_view text) const {
    const std::string_view bare = text.substr(0, text.find_last_not_of(" \t\r\n") + 1);  // templates trim
    size_t begin = text.size();
    for (std::string_view cut : {text, bare}) {
      for (size_t n = std::min(longest_name_ - 1, cut.size()); n > 0; --n) {
        const std::string_view end = cut.substr(cut.size() - n);
        const auto name = std::lower_bound(names_.begin(), names_.end(), end);
        if (name != names_.end() && name->substr(0, n) == end) begin = std::min(begin, cut.size() - n);
      }
    }
    return begin;
  }

  std::vector<std::string_view> names_;  // sorted; names that begin with a sign; words may be plain text
  size_t longest_name_ = 1;
  AddedTokens tokens_;
};

// Removes the marks, and returns the positions of the bytes after them.
std::vector<size_t> take_marks(std::string& text) {
  std::vector<size_t> places;
  std::string out;
  for (size_t begin = 0;;) {
    const size_t end = std::min(text.find(kMark, begin), text.size());
    out.append(text, begin, end - begin);
    if (end == text.size()) break;
    places.push_back(out.size());
    begin = end + kMark.size();
  }
  text = std::move(out);
  return places;
}

// A template that strips white space at the ends of a text (of a thought, before its </think>) does not strip it next
// to a mark. `plain` is the rendering without marks. If it equals `marked` except for missing white space, it replaces
// `marked`, and the places are moved.
void prefer_plain(std::string& marked, std::string plain, std::vector<size_t>& places) {
  std::vector<size_t> moved;
  size_t at = 0, next = 0;
  for (size_t i = 0; i < marked.size(); ++i) {
    const bool stays = at < plain.size() && marked[i] == plain[at];
    if (!stays && std::string_view(" \t\r\n").find(marked[i]) == std::string_view::npos) return;
    for (; next < places.size() && places[next] == i; ++next)
      if (stays) moved.push_back(at);
    at += stays;
  }
  if (at < plain.size()) return;
  marked = std::move(plain);
  places = std::move(moved);
}

// The text at the end of the last message: its content, or the text of its last part. Null if the message is not an
// assistant's or does not end with text.
std::string* last_text(Json& messages) {
  if (!messages.is_array() || messages.empty() || !messages.back().is_object()) return nullptr;
  Json& message = messages.back();
  if (message.value("role", Json()) != "assistant" || !message.contains("content")) return nullptr;
  Json* content = &message["content"];
  if (content->is_array() && !content->empty() && content->back().is_object() && content->back().contains("text"))
    content = &content->back()["text"];
  return content->get_ptr<std::string*>();
}

// The messages with kEnd after the last message's text. The text contains no other kEnd.
Json with_end(Json messages) {
  std::string* text = last_text(messages);
  if (!text)
    throw Error(
        "messages: the last message cannot be continued: it must be an assistant message whose content is a string or "
        "ends with a text part");
  take_out(*text, kEnd);
  *text += kEnd;
  return messages;
}

void cut_at_end(std::string& text) {
  const size_t end = text.rfind(kEnd);
  if (end == std::string::npos)
    throw Error("messages: the last message cannot be continued: the chat template does not show its text");
  text.resize(end);
}

}  // namespace

void RenderedChat::replace(size_t at, size_t n, std::string_view by) {
  text.replace(at, n, by);
  std::erase_if(quoted, [&](size_t place) { return place >= at && place < at + n; });
  for (size_t& place : quoted)
    if (place >= at) place += by.size() - n;
}

size_t RenderedChat::find(std::string_view token, size_t from) const {
  size_t at = text.find(token, from);
  while (at != std::string::npos && std::ranges::binary_search(quoted, at)) at = text.find(token, at + 1);
  return at;
}

RenderedChat render_chat(const Tokenizer& tokenizer, const ChatTemplate& chat, const Json& messages, const Json& tools,
                         const Json& variables, ChatEnd end) {
  const Marker marker(tokenizer, {chat.placeholder(MediaKind::kImage), chat.placeholder(MediaKind::kSound)});
  Json shown[] = {end == ChatEnd::kOpenMessage ? with_end(messages) : messages, tools, variables};
  for (const MediaKind kind : kMediaKinds)
    if (chat.reads(kind))
      for (Json& part : shown) take_media_marks_out(part, kind);
  const auto render = [&](const ChatTemplate::Edit& edit) {
    std::string text = chat.render(shown[0], shown[1], end == ChatEnd::kAnswer, shown[2], edit);
    if (end == ChatEnd::kOpenMessage) cut_at_end(text);
    return text;
  };
  RenderedChat rendered;
  rendered.text = render([&](Json& part) { marker.mark(part); });
  rendered.quoted = take_marks(rendered.text);
  if (!rendered.quoted.empty()) prefer_plain(rendered.text, render(take_marks_out), rendered.quoted);
  for (const MediaKind kind : kMediaKinds) {
    const std::string_view mark = facts_of(kind).mark, placeholder = chat.placeholder(kind);
    if (!chat.reads(kind)) continue;
    for (size_t at = 0; (at = rendered.text.find(mark, at)) != std::string::npos; at += placeholder.size())
      rendered.replace(at, mark.size(), placeholder);
  }
  return rendered;
}

std::vector<int32_t> encode_rendered(const Tokenizer& tokenizer, const RenderedChat& chat) {
  std::vector<int32_t> ids =
      tokenizer.encode(chat.text, {.add_special = false, .parse_special = true, .quoted = chat.quoted});
  const bool has_bos = !ids.empty() && tokenizer.bos() && ids[0] == *tokenizer.bos();
  if (tokenizer.add_bos() && !has_bos) ids.insert(ids.begin(), *tokenizer.bos());
  return ids;
}

std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, const ChatTemplate& chat, const Json& messages,
                                 const Json& tools, const Json& variables, ChatEnd end) {
  return encode_rendered(tokenizer, render_chat(tokenizer, chat, messages, tools, variables, end));
}

}  // namespace ingot
