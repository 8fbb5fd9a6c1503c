#include "text/answers/answer_reader.h"

#include <fmt/format.h>

#include "base/error.h"

namespace ingot {

using Kind = AnswerEvent::Kind;

AnswerReader::AnswerReader(const AnswerForm& form, int choice)
    : parallel_calls_(form.parallel_calls),
      splits_reasoning_(form.splits_reasoning),
      whole_calls_(form.whole_calls),
      keep_stop_(form.keep_stop),
      stops_(form.stops) {
  if (form.format)
    parser_.emplace(*form.format, AnswerOptions{.tools = form.tools.is_null() ? nullptr : &form.tools,
                                                .calls = !form.tools.is_null(),
                                                .in_reasoning = form.in_reasoning,
                                                .closes_tags = form.constrains_calls,
                                                .id_seed = form.id_seed + static_cast<uint64_t>(choice)});
  if (choice == 0) warnings_ = form.warnings;
}

AnswerEvents AnswerReader::read(std::string_view text, bool may_stop) {
  if (stopped()) return {};
  may_stop_ = may_stop;
  if (text.empty()) return {};
  raw_ += text;
  AnswerEvents events;
  if (parser_)
    parser_->feed(text, events);
  else
    events = {{.kind = Kind::kContent, .text = std::string(text), .raw = text.size()}};
  return shown(std::move(events));
}

AnswerEvents AnswerReader::finish() {
  if (stopped()) return {};
  AnswerEvents events;
  if (parser_) parser_->finish(events);
  AnswerEvents out = shown(std::move(events));
  if (!stopped()) release_content(out);
  return out;
}

AnswerEvents AnswerReader::shown(AnswerEvents events) {
  AnswerEvents out;
  for (AnswerEvent& event : events) {
    if (stopped()) break;
    has_begun_calls_ |= event.kind == Kind::kCallBegin;
    if (event.kind == Kind::kWarning)
      warnings_.push_back(std::move(event.text));
    else if (event.kind == Kind::kCallBegin || !held_.empty())
      show_call(std::move(event), out);
    else
      show(std::move(event), out);
  }
  return out;
}

// Takes the event's bytes from the raw text.
void AnswerReader::turn_to_content(AnswerEvent& event) const {
  event = {.kind = Kind::kContent, .text = raw_.substr(0, event.raw), .raw = event.raw};
}

// Holds the events of a call until its end.
void AnswerReader::show_call(AnswerEvent event, AnswerEvents& out) {
  const bool is_further = event.call > n_unshown_calls_ && !parallel_calls_;
  const bool is_end = event.kind == Kind::kCallEnd;
  if (!whole_calls_ && !is_further && held_.empty()) return show(std::move(event), out);
  held_.push_back(std::move(event));
  if (!is_end) return;
  AnswerEvents call = std::exchange(held_, {});
  const bool is_whole = call.back().whole;
  n_unshown_calls_ += is_further || !is_whole;
  if (is_further && is_whole)
    warnings_.push_back(fmt::format("a further call of {} is left out, because parallel calls are off",
                                    printable(call.front().text, 64)));
  for (AnswerEvent& one : call) {
    if (!is_whole) turn_to_content(one);
    if (is_further && is_whole) one = {.kind = Kind::kMarkup, .raw = one.raw};
    show(std::move(one), out);
  }
}

void AnswerReader::show(AnswerEvent event, AnswerEvents& out) {
  const bool has_text = event.kind == Kind::kReasoning || (event.kind == Kind::kMarkup && !has_begun_calls_);
  const bool is_marked = !splits_reasoning_ && has_text && event.raw > 0;
  if (is_marked) turn_to_content(event);
  raw_.erase(0, event.raw);
  if (event.kind == Kind::kContent && !is_marked) return show_content(std::move(event), out);
  release_content(out);
  if (event.call >= 0) event.call -= n_unshown_calls_;
  if (event.kind == Kind::kCallBegin) ++n_shown_calls_;
  if (event.kind == Kind::kCallEnd && !event.whole) has_cut_call_ = true;
  out.push_back(std::move(event));
}

void AnswerReader::show_content(AnswerEvent event, AnswerEvents& out) {
  if (may_stop_) {
    event.text = stops_.push(event.text);
    if (stopped() && keep_stop_) event.text += stops_.match();
    event.raw = event.text.size();
  }
  if (!event.text.empty()) append_events(out, {std::move(event)});
}

// A stop string cannot continue after something else than content.
void AnswerReader::release_content(AnswerEvents& out) {
  std::string text = stops_.flush();
  const size_t raw = text.size();
  if (raw > 0) append_events(out, {{.kind = Kind::kContent, .text = std::move(text), .raw = raw}});
}

void append_events(AnswerEvents& events, AnswerEvents more) {
  for (AnswerEvent& event : more) {
    const bool joins = event.kind == Kind::kReasoning || event.kind == Kind::kContent ||
                       event.kind == Kind::kCallArguments || event.kind == Kind::kMarkup;
    if (!joins || events.empty() || events.back().kind != event.kind) {
      events.push_back(std::move(event));
      continue;
    }
    events.back().text += event.text;
    events.back().raw += event.raw;
  }
}

}  // namespace ingot
