#include "text/calls/answer_parser.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/ascii.h"
#include "base/json.h"
#include "base/splitmix.h"

namespace ingot {

constexpr int kMaxWarnings = 16;

AnswerParser::AnswerParser(const CallFormat& format, const AnswerOptions& options)
    : format_(format),
      calls_(options.calls && format.syntax != CallSyntax::kNone),
      knows_tools_(options.tools != nullptr && options.tools->is_array()),
      closes_tags_(options.closes_tags),
      id_seed_(options.id_seed),
      think_begin_(trim(format.think_begin)),
      think_end_(trim(format.think_end)),
      header_(trim(format.header)),
      answer_begin_(trim(format.answer_begin)),
      answer_end_(trim(format.answer_end)),
      list_begin_(trim(format.list_begin)),
      list_end_(trim(format.list_end)),
      call_begin_(trim(format.call_begin)),
      call_end_(trim(format.call_end)),
      name_begin_(trim(format.name_begin)),
      id_begin_(trim(format.id_begin)),
      name_end_(trim(format.name_end)),
      args_end_(trim(format.args_end)),
      param_begin_(trim(format.param_begin)),
      key_end_(trim(format.key_end)),
      value_begin_(trim(format.value_begin)),
      string_begin_(trim(format.string_begin)),
      param_end_(trim(format.param_end)) {
  tools_ = std::make_shared<Tools>();
  if (knows_tools_) read_tools(*options.tools);
  const bool channels = format.syntax == CallSyntax::kChannel;
  if (channels) {
    body_ = Kind::kReasoning;
    enter(options.in_reasoning ? State::kBody : State::kIdle);
  } else {
    enter(options.in_reasoning ? State::kReasoning : State::kFront);
  }
}

void AnswerParser::feed(std::string_view text, AnswerEvents& events) {
  out_ = &events;
  replay(text);
}

void AnswerParser::finish(AnswerEvents& events) {
  out_ = &events;
  // At the end, held text cannot become a marker. So the first held byte is text, and the rest is read again.
  while (is_text() && !matcher_.held().empty()) {
    const std::string rest = matcher_.take();
    if (on_plain(rest[0]))
      replay(std::string_view(rest).substr(1));
    else
      replay(rest);
  }
  if (state_ == State::kReasoning) {
    if (!end_reasoning_with_calls()) flush_as(Kind::kReasoning);
  } else if (!is_text()) {
    finish_call();
  } else if (state_ == State::kHeader) {
    warn("the answer ends in the header of a message, so the header is content");
    flush_as(Kind::kContent);
  } else if (after_call_) {
    flush_markup();
  } else {
    flush_as(Kind::kContent);
  }
}

void AnswerParser::replay(std::string_view text) {
  for (const char c : text) byte(c);
}

void AnswerParser::byte(char c) {
  if (is_text())
    on_text(c);
  else if (state_ < State::kElements)
    on_call(c);
  else
    on_list(c);
}

AnswerEvent& AnswerParser::event(Kind kind) {
  const bool joins =
      kind == Kind::kReasoning || kind == Kind::kContent || kind == Kind::kCallArguments || kind == Kind::kMarkup;
  if (!joins || out_->empty() || out_->back().kind != kind) {
    out_->emplace_back().kind = kind;
    if (kind >= Kind::kCallBegin && kind <= Kind::kCallEnd) out_->back().call = n_calls_ - 1;
  }
  return out_->back();
}

void AnswerParser::text(Kind kind, std::string_view text) {
  if (text.empty()) return;
  if (kind == Kind::kReasoning) has_reasoning_ = true;
  AnswerEvent& e = event(kind);
  e.text += text;
  e.raw += text.size();
}

void AnswerParser::markup(size_t n_bytes) {
  if (n_bytes > 0) event(Kind::kMarkup).raw += n_bytes;
}

void AnswerParser::arguments(std::string_view json, size_t raw) {
  if (json.empty() && raw == 0) return;
  AnswerEvent& e = event(Kind::kCallArguments);
  e.text += json;
  e.raw += raw;
}

void AnswerParser::warn(std::string message) {
  if (++n_warnings_ <= kMaxWarnings) event(Kind::kWarning).text = std::move(message);
}

void AnswerParser::flush_markup() {
  markup(raw_.size());
  raw_.clear();
}

void AnswerParser::flush_as(Kind kind) {
  text(kind, raw_);
  raw_.clear();
}

void AnswerParser::enter(State state) {
  state_ = state;
  matcher_.look_for(markers_of(state));
}

// The state after a complete call.
void AnswerParser::enter_rest() { enter(format_.syntax == CallSyntax::kChannel ? State::kIdle : State::kContent); }

void AnswerParser::enter_content() {
  if (format_.syntax == CallSyntax::kChannel)
    enter_body(Kind::kContent);
  else
    enter(State::kContent);
}

std::vector<std::string_view> AnswerParser::markers_of(State state) const {
  if (state == State::kIdle)
    return {"<|start|>", "<|channel|>", "to=", "<|message|>", "<|end|>", "<|call|>", "<|return|>"};
  if (state == State::kHeader) return {"<|message|>", "<|end|>", "<|call|>", "<|return|>"};
  if (state == State::kBody) return {"<|start|>", "<|channel|>", "<|end|>", "<|call|>", "<|return|>"};
  std::vector<std::string_view> markers;
  if (state == State::kReasoning) markers = {think_end_};
  if (state == State::kFront) markers = {think_begin_, header_, answer_begin_};
  if (state == State::kGap) markers = {answer_begin_};
  if (calls_) {
    markers.insert(markers.end(), {list_begin_, call_begin_, format_.other_begin});
    if (format_.bare_name) markers.push_back(name_begin_);
  }
  if (state == State::kContent && n_calls_ > 0 && !is_broken_) {
    markers.push_back(format_.other_end);
    // A short closing marker that is not due is probably content: "]", "```".
    if (list_due_ || list_end_.size() > 3) markers.push_back(list_end_);
    if (call_due_ || call_end_.size() > 3) markers.push_back(call_end_);
    if (args_due_ || args_end_.size() > 3) markers.push_back(args_end_);
  }
  if (state == State::kContent && in_answer_) markers.push_back(answer_end_);
  return markers;
}

bool AnswerParser::is_opener(std::string_view marker) const {
  return calls_ && (marker == list_begin_ || marker == call_begin_ || marker == format_.other_begin ||
                    (format_.bare_name && marker == name_begin_));
}

void AnswerParser::on_text(char c) {
  std::string released;
  const std::string_view marker = matcher_.feed(c, released);
  for (size_t i = 0; i < released.size(); ++i) {
    const State before = state_;
    const bool taken = on_plain(released[i]);
    if (taken && state_ == before) continue;
    // The new state has other markers, so it reads the remaining text again.
    const std::string rest = released.substr(i + taken) + (marker.empty() ? matcher_.take() : std::string(marker));
    return replay(rest);
  }
  if (!marker.empty()) on_marker(marker);
}

// Reads a byte that is not part of a marker. Returns false if the state has changed; the new state then reads the byte.
bool AnswerParser::on_plain(char c) {
  if (state_ >= State::kIdle) return on_channel_plain(c);
  if (state_ == State::kReasoning) {
    if (try_)
      try_call({&c, 1});
    else if (is_blank(c) && !has_reasoning_)
      markup(1);
    else
      text(Kind::kReasoning, {&c, 1});
    return true;
  }
  if (state_ == State::kContent) {
    raw_ += c;  // white space waits, because a marker may follow
    if (is_blank(c)) return true;
    flush_as(Kind::kContent);
    after_call_ = false;
    return true;
  }
  return on_front(c);
}

bool AnswerParser::on_front(char c) {
  if (is_blank(c)) {
    if (state_ == State::kGap)
      markup(1);
    else
      raw_ += c;
    return true;
  }
  if (calls_ && format_.unmarked && c == (format_.syntax == CallSyntax::kPython ? '[' : '{')) {
    marked_ = bracket_ = in_envelope_ = done_ = false;
    block_calls_ = 0;
    state_ = State::kElements;
  } else {
    flush_as(Kind::kContent);
    enter(State::kContent);
  }
  return false;
}

void AnswerParser::on_marker(std::string_view marker) {
  if (state_ >= State::kIdle) return on_channel_marker(marker);
  if (state_ == State::kReasoning && !format_.call_ends_reasoning) {
    if (is_opener(marker)) return try_call(marker);
    if (std::exchange(try_, nullptr)) flush_as(Kind::kReasoning);  // calls in reasoning with an end are reasoning
  }
  if (is_opener(marker)) return open_block(marker);
  raw_ += marker;
  flush_markup();
  if (state_ == State::kReasoning) return enter(State::kGap);
  if (state_ == State::kContent) return on_closer(marker);
  if (marker == think_begin_) return enter(State::kReasoning);
  if (marker == answer_begin_) {
    in_answer_ = true;
    return enter(State::kGap);
  }
  warn("the answer repeats the turn's header");
}

// Holds text of the reasoning that may be calls at the end of the answer. Anything else after or beside the calls shows
// that the text is reasoning.
void AnswerParser::try_call(std::string_view text) {
  if (!try_) {
    try_ = std::make_unique<AnswerParser>(format_, AnswerOptions{.id_seed = id_seed_});
    try_->knows_tools_ = knows_tools_;
    try_->tools_ = tools_;
    try_->enter(State::kContent);
    tried_.clear();
    n_tried_ = 0;
  }
  raw_ += text;
  try_->feed(text, tried_);
  bool is_call = true;
  for (size_t i = n_tried_ == 0 ? 0 : n_tried_ - 1; i < tried_.size(); ++i) {
    is_call &= tried_[i].kind != Kind::kContent || trim(tried_[i].text).empty();
    is_call &= tried_[i].kind != Kind::kCallBegin || !knows_tools_ || tools_->contains(tried_[i].text);
  }
  n_tried_ = tried_.size();
  if (is_call) return;
  try_.reset();
  flush_as(Kind::kReasoning);
}

// Complete calls that end the answer end its reasoning.
bool AnswerParser::end_reasoning_with_calls() {
  if (!try_) return false;
  try_->finish(tried_);
  bool is_whole = try_->n_calls_ > 0;
  for (const AnswerEvent& e : tried_) is_whole &= e.kind != Kind::kContent && (e.kind != Kind::kCallEnd || e.whole);
  if (!is_whole) return false;
  warn("the answer ends with a call inside its reasoning: the call is taken");
  n_calls_ = try_->n_calls_;
  raw_.clear();
  for (AnswerEvent& e : tried_) out_->push_back(std::move(e));
  return true;
}

void AnswerParser::on_closer(std::string_view marker) {
  if (in_answer_ && marker == answer_end_) {
    in_answer_ = false;
    return enter(State::kGap);
  }
  if (marker == format_.other_end) return;
  bool& due = marker == list_end_ ? list_due_ : marker == call_end_ ? call_due_ : args_due_;
  if (!due) warn(fmt::format("{} has no opening marker", marker));
  due = false;
  enter(State::kContent);
}

// Reads the first marker of a call or of a list of calls. The marker is content if no call follows.
void AnswerParser::open_block(std::string_view marker) {
  raw_ += marker;
  marked_ = true;
  bracket_ = in_envelope_ = done_ = false;
  block_calls_ = 0;
  const bool is_list = marker == list_begin_;
  if (is_list)
    list_due_ = true;
  else
    call_due_ = marker != format_.other_begin;
  if (format_.syntax == CallSyntax::kEnvelope || format_.syntax == CallSyntax::kPython)
    state_ = State::kElements;
  else if (is_list)
    expect({{call_begin_, State::kCallBegun}});
  else
    go(marker == call_begin_ ? State::kCallBegun : State::kName);
}

// The text since the opening marker, or since the last call, is not a call.
void AnswerParser::fail() {
  if (marked_) warn("a text that begins like a call is not a call of this format, so the text is content");
  after_call_ = done_ = false;
  flush_as(Kind::kContent);
  enter_content();
}

void AnswerParser::begin_call() {
  ++n_calls_;
  ++block_calls_;
  begun_ = after_call_ = true;
  given_.clear();
  is_broken_ = false;
  first_param_ = true;
  AnswerEvent& e = event(Kind::kCallBegin);
  e.text = name_;
  e.id = id_.empty() ? make_id() : id_;
  e.raw = raw_.size();
  raw_.clear();
}

void AnswerParser::end_call(bool whole) {
  event(Kind::kCallEnd).whole = whole;
  begun_ = false;
}

// The call has begun, but raw_ does not continue it.
void AnswerParser::break_call() {
  end_call(false);
  warn(fmt::format("the arguments of call {} cannot be read: the text after them is content", n_calls_ - 1));
  is_broken_ = true;
  list_due_ = call_due_ = args_due_ = false;
  flush_as(Kind::kContent);
  enter_content();
}

void AnswerParser::finish_call() {
  if (std::exchange(is_value_open_, false)) {
    raw_ += matcher_.take();
    end_value();
    flush_markup();
  }
  const bool between_calls = state_ == State::kElements && block_calls_ > 0;
  if (!begun_ && (between_calls || done_)) return flush_markup();
  if (begun_ && state_ == State::kArgs) {
    arguments(reader_.held(), reader_.held().size());
  } else if (begun_ && state_ == State::kValue) {
    for (const char c : matcher_.take()) value_byte(c);
    if (newline_) arguments("\\n", 1);
    arguments(value_, value_.size());
  } else {
    raw_ += matcher_.take();
  }
  if (marked_ || begun_) warn("the answer ends within a call");
  if (begun_) end_call(false);
  flush_as(Kind::kContent);
}

std::string AnswerParser::make_id() const {
  constexpr std::string_view kDigits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  if (format_.ids == CallIds::kNamed) return fmt::format("functions.{}:{}", name_, n_calls_ - 1);
  const bool is_short = format_.ids == CallIds::kNine;
  std::string id = is_short ? "" : "call_";
  uint64_t counter = splitmix(id_seed_) + static_cast<uint64_t>(n_calls_) * 64 * kSplitMixStep;
  for (int i = 0; i < (is_short ? 9 : 24); ++i) id += kDigits[splitmix(counter += kSplitMixStep) % kDigits.size()];
  return id;
}

void AnswerParser::read_tools(const nlohmann::ordered_json& tools) {
  auto kinds_of_tools = std::make_shared<Tools>();
  for (const auto& tool : tools) {
    if (!tool.is_object()) continue;
    const auto function = tool.find("function");
    const auto& description = function == tool.end() ? tool : *function;
    if (!description.is_object()) continue;
    const auto name = description.find("name");
    if (name == description.end() || !name->is_string()) continue;
    ParameterKinds& kinds = (*kinds_of_tools)[name->get<std::string>()];
    if (const auto parameters = description.find("parameters"); parameters != description.end())
      kinds = parameter_kinds(*parameters);
  }
  tools_ = std::move(kinds_of_tools);
}

}  // namespace ingot
