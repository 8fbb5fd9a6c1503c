// The events of an AnswerParser for a text, assembled into one answer, for tests and the fuzzer.
#pragma once
#include <fmt/format.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/splitmix.h"
#include "text/calls/answer_parser.h"

namespace ingot::testing {

struct ReadCall {
  std::string name, arguments, id;
  bool whole = false;
};

struct Answer {
  std::string reasoning, content;
  std::vector<ReadCall> calls;
  std::vector<std::string> warnings;
  std::string fault;  // a promise that was not kept
};

// Assembles the events. Checks that the events cover each byte of `text` in order, and that reasoning and content are
// unchanged. With `whole_calls`, a call that is not whole is content.
inline Answer gather(const AnswerEvents& events, std::string_view text, bool whole_calls = false) {
  using Kind = AnswerEvent::Kind;
  Answer all;
  size_t at = 0, call_at = 0;
  int n_calls = 0;
  bool open = false;
  for (const AnswerEvent& e : events) {
    if (e.raw > text.size() - at) return all.fault = "more bytes than the text has", all;
    const bool is_text = e.kind == Kind::kReasoning || e.kind == Kind::kContent;
    if (is_text && e.text != text.substr(at, e.raw)) all.fault = fmt::format("other bytes at {}", at);
    if (e.kind == Kind::kCallBegin) call_at = at;
    at += e.raw;
    if (e.kind == Kind::kReasoning) all.reasoning += e.text;
    if (e.kind == Kind::kContent) all.content += e.text;
    if (e.kind == Kind::kWarning) all.warnings.push_back(e.text);
    if (e.kind == Kind::kCallBegin) {
      if (open || e.text.empty() || e.id.empty()) all.fault = "a call begins wrongly";
      all.calls.push_back({e.text, "", e.id});
      ++n_calls;
      open = true;
    }
    if (e.kind == Kind::kCallBegin || e.kind == Kind::kCallArguments || e.kind == Kind::kCallEnd)
      if (!open || e.call != n_calls - 1) return all.fault = "a wrong call", all;
    if (e.kind == Kind::kCallArguments) all.calls.back().arguments += e.text;
    if (e.kind == Kind::kCallEnd) {
      all.calls.back().whole = e.whole;
      open = false;
      std::string ascii = all.calls.back().arguments;  // ill-formed UTF-8 in a string is passed on
      for (char& c : ascii) c = c < 0 ? 'x' : c;
      if (e.whole && !nlohmann::json::parse(ascii, nullptr, false).is_object())
        all.fault = "arguments are no object: " + all.calls.back().arguments;
      if (!e.whole && all.warnings.empty() && &e == &events.back()) all.fault = "no warning of a cut call";
      if (e.whole || !whole_calls) continue;
      all.content += text.substr(call_at, at - call_at);
      all.calls.pop_back();
    }
  }
  if (open) all.fault = "a call does not end";
  if (at != text.size()) all.fault = fmt::format("{} of {} bytes", at, text.size());
  return all;
}

inline Answer read_whole(const CallFormat& format, std::string_view text, const AnswerOptions& options = {},
                         bool whole_calls = false) {
  AnswerEvents events;
  AnswerParser parser(format, options);
  parser.feed(text, events);
  parser.finish(events);
  return gather(events, text, whole_calls);
}

// Parses `text` in pieces of 1 to 8 bytes, chosen by `seed`. Each piece has its own list of events, as in a server.
inline Answer read_pieces(const CallFormat& format, std::string_view text, uint64_t seed,
                          const AnswerOptions& options = {}) {
  AnswerEvents all;
  AnswerParser parser(format, options);
  const auto add = [&](AnswerEvents& events) { all.insert(all.end(), events.begin(), events.end()); };
  for (std::string_view rest = text; !rest.empty();) {
    const size_t n = std::min<size_t>(rest.size(), 1 + splitmix(seed += kSplitMixStep) % 8);
    AnswerEvents events;
    parser.feed(rest.substr(0, n), events);
    add(events);
    rest.remove_prefix(n);
  }
  AnswerEvents events;
  parser.finish(events);
  add(events);
  return gather(all, text);
}

// Everything that a client sees, as one text.
inline std::string described(const Answer& all) {
  std::string text = fmt::format("reasoning [{}]\ncontent [{}]\n", all.reasoning, all.content);
  for (const ReadCall& call : all.calls)
    text += fmt::format("call {} {} {}{}\n", call.id, call.name, call.arguments, call.whole ? "" : " (cut)");
  for (const std::string& warning : all.warnings) text += "warning: " + warning + '\n';
  return text + all.fault;
}

// Random pieces of model output: markers of this row and of other rows, JSON, tags, odd bytes.
inline std::string drawn_text(const CallFormat& row, std::mt19937& draw) {
  const std::string_view markers[] = {
      row.think_begin, row.think_end,   row.header,      row.answer_begin, row.answer_end,   row.list_begin,
      row.list_end,    row.separator,   row.call_begin,  row.call_end,     row.name_begin,   row.name_end,
      row.args_end,    row.param_begin, row.key_end,     row.value_begin,  row.string_begin, row.param_end,
      row.string_mark, row.id_begin,    row.other_begin, row.other_end};
  constexpr std::string_view kOthers[] = {"{\"name\": \"get_weather\", \"arguments\": {\"city\": \"x\"}}",
                                          "{\"city\": \"x\", \"days\": 3}",
                                          "get_weather",
                                          "city",
                                          "days",
                                          "get_weather(city='x', days=2)",
                                          "{city:1}",
                                          "\"",
                                          "{",
                                          "}",
                                          "[",
                                          "]",
                                          "(",
                                          ")",
                                          ",",
                                          ";",
                                          ":",
                                          "=",
                                          " ",
                                          "\n",
                                          "'",
                                          "\\",
                                          "x",
                                          "1.5",
                                          "<",
                                          ">",
                                          "\xff",
                                          "日",
                                          "to=functions.now",
                                          "<|start|>",
                                          "<|channel|>",
                                          "<|message|>",
                                          "analysis",
                                          "\"name\": \"now\"",
                                          "null",
                                          "```"};
  std::string text;
  const auto whole_call = [&] {
    const bool json =
        row.syntax == CallSyntax::kEnvelope || row.syntax == CallSyntax::kNamed || row.syntax == CallSyntax::kChannel;
    return row.begin_text("get_weather") +
           (json                               ? "{\"city\": \"x\"}"
            : row.syntax == CallSyntax::kGemma ? "{days:1}"
                                               : "") +
           row.end_text();
  };
  for (int n = static_cast<int>(draw() % 14); n >= 0; --n) {
    const unsigned kind = draw() % 8;
    if (kind < 4)
      text += markers[draw() % std::size(markers)];
    else if (kind < 7)
      text += kOthers[draw() % std::size(kOthers)];
    else
      text += whole_call();
  }
  for (unsigned n = draw() % 3; n > 0 && !text.empty(); --n) text[draw() % text.size()] = static_cast<char>(draw());
  return text.substr(0, draw() % 4 == 0 ? draw() % (text.size() + 1) : text.npos);
}

}  // namespace ingot::testing
