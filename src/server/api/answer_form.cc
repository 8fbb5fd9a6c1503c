#include "server/api/answer_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "base/ascii.h"
#include "base/error.h"
#include "server/api/request_fields.h"

namespace ingot {

using Kind = AnswerEvent::Kind;

void prepare_answer(const ServedModel& model, GenerationSpec& spec, AnswerForm& form) {
  const std::span<const int32_t> prompt = spec.prompts[0];
  form.format = &model.call_format();
  const std::string prompt_end = model.tokenizer().decode(prompt.last(std::min<size_t>(prompt.size(), 16)));
  form.in_reasoning = opens_reasoning(*form.format, prompt_end);
  form.closed_reasoning = trim(prompt_end).ends_with(trim(form.format->think_end));
  form.id_seed = random_seed();
  spec.keep_markers = true;
}

AnswerReader::AnswerReader(const AnswerForm& form, int choice)
    : parallel_calls_(form.parallel_calls),
      splits_reasoning_(form.splits_reasoning),
      parser_(*form.format, {.tools = form.tools.is_null() ? nullptr : &form.tools,
                             .calls = !form.tools.is_null(),
                             .in_reasoning = form.in_reasoning,
                             .id_seed = form.id_seed + static_cast<uint64_t>(choice)}) {
  if (choice == 0) warnings_ = form.warnings;
}

AnswerEvents AnswerReader::read(std::string_view text) {
  if (!splits_reasoning_) raw_ += text;
  AnswerEvents events;
  parser_.feed(text, events);
  return shown(std::move(events));
}

AnswerEvents AnswerReader::finish() {
  AnswerEvents events;
  parser_.finish(events);
  return shown(std::move(events));
}

AnswerEvents AnswerReader::shown(AnswerEvents events) {
  std::erase_if(events, [&](AnswerEvent& event) { return !shows(event); });
  return events;
}

bool AnswerReader::shows(AnswerEvent& event) {
  if (event.kind == Kind::kCallBegin) has_begun_calls_ = true;
  if (!splits_reasoning_) {
    if (event.kind == Kind::kReasoning || (event.kind == Kind::kMarkup && !has_begun_calls_)) {
      event.kind = Kind::kContent;
      event.text = raw_.substr(0, event.raw);
    }
    raw_.erase(0, event.raw);
  }
  if (event.kind == Kind::kWarning) warnings_.push_back(std::move(event.text));
  if (event.kind == Kind::kWarning || event.kind == Kind::kMarkup) return false;
  const bool is_further = event.call > 0 && !parallel_calls_;
  if (is_further && event.kind == Kind::kCallBegin)
    warnings_.push_back(
        fmt::format("a further call of {} is left out, because parallel calls are off", printable(event.text, 64)));
  return !is_further;
}

}  // namespace ingot
