#include "server/served_model.h"

#include "text/calls/model_format.h"

namespace ingot {

void ServedModel::find_markers() {
  const CallFormat*& format = parts_.call_format;
  if (!format) format = &call_format_of_model(parts_.chat.source());
  marker_tokens_ = ingot::marker_tokens(*format, *parts_.tokenizer);
}

}  // namespace ingot
