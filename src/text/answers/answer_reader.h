// AnswerReader: reads the text of one answer as it is generated, and returns events for reasoning, content and calls.
// The raw bytes of all events, in order, are the bytes of the answer up to its end or stop string.
//
// Only the content ends at a stop string: text of the reasoning and of calls may contain the string.
//
// A client must never run a call whose arguments the model did not write. If the form wants whole calls, the events of
// a call are held until the call is complete, and an incomplete call becomes content with a warning. Otherwise the
// client has already seen the call's begin, so has_cut_call() tells that the answer must not end like a complete one.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/answers/answer_form.h"
#include "text/calls/answer_parser.h"
#include "text/stop_strings.h"

namespace ingot {

class AnswerReader {
 public:
  explicit AnswerReader(const AnswerForm& form, int choice = 0);

  // `may_stop`: whether the content of this text may complete a stop string. After a stop string, returns no events.
  AnswerEvents read(std::string_view text, bool may_stop = true);
  AnswerEvents finish();  // call once, at the end

  bool stopped() const { return stops_.stopped(); }
  const std::string& stop_string() const { return stops_.match(); }
  bool has_calls() const { return n_shown_calls_ > 0; }
  bool has_cut_call() const { return has_cut_call_; }
  // Warnings for people about text that did not parse or was left out. Choice 0 starts with the warnings of the
  // request.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  void show(AnswerEvent event, AnswerEvents& out);
  void show_call(AnswerEvent event, AnswerEvents& out);
  void show_content(AnswerEvent event, AnswerEvents& out);
  void release_content(AnswerEvents& out);
  void turn_to_content(AnswerEvent& event) const;
  AnswerEvents shown(AnswerEvents events);

  const bool parallel_calls_, splits_reasoning_, whole_calls_, keep_stop_;
  std::optional<AnswerParser> parser_;  // none: the whole answer is content
  StopStrings stops_;
  std::string raw_;          // the text not covered by a shown event yet
  AnswerEvents held_;        // of a call that is not complete
  int n_shown_calls_ = 0;
  int n_unshown_calls_ = 0;  // calls that became content or were left out
  bool may_stop_ = true, has_begun_calls_ = false, has_cut_call_ = false;
  std::vector<std::string> warnings_;
};

// Appends events, and joins texts of the same kind.
void append_events(AnswerEvents& events, AnswerEvents more);

}  // namespace ingot
