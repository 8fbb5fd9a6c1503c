#include "server/api/answer_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "base/error.h"
#include "server/api/request_fields.h"

namespace ingot {

using Kind = AnswerEvent::Kind;

bool ToolReader::keeps(const JsonValue& tool, const std::string& where) {
  if (!tool.is_object()) refuse_value(where, "must be an object");
  if (!tool.contains("type") || tool["type"].is_null()) return true;
  const std::string& type = string_member(tool, "type", where);
  if (type == type_) return true;
  form_.warnings.push_back(
      fmt::format("{} is left out: this server has no tools of the type '{}'", where, printable(type, 64)));
  return false;
}

void ToolReader::check_strict(const JsonValue& function, const std::string& where) {
  if (Fields(function, where + ".").boolean("strict").value_or(false))
    form_.warnings.push_back(fmt::format("{}.strict is not enforced by this server yet", where));
}

void prepare_answer(const ServedModel& model, GenerationSpec& spec, AnswerForm& form) {
  const std::span<const int32_t> prompt = spec.prompts[0];
  form.format = &model.call_format();
  form.in_reasoning =
      opens_reasoning(*form.format, model.tokenizer().decode(prompt.last(std::min<size_t>(prompt.size(), 16))));
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
        fmt::format("a further call, of {}, is left out: parallel calls are off", printable(event.text, 64)));
  return !is_further;
}

}  // namespace ingot
