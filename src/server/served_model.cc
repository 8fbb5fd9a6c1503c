#include "server/served_model.h"

#include "text/calls/marker_tokens.h"

namespace ingot {

void ServedModel::find_markers() {
  if (!parts_.call_format) parts_.call_format = &call_format_of(parts_.chat);
  marker_tokens_ = ingot::marker_tokens(*parts_.tokenizer, *parts_.call_format);
}

}  // namespace ingot
