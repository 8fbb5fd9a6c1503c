// ApiCall: what a route that uses a model gets.
#pragma once
#include "server/answers/generation.h"
#include "server/models/model_pool.h"
#include "server/requests/media_source.h"
#include "text/json_value.h"

namespace ingot {

struct ApiCall {
  const HttpRequest& request;  // the head only: the body's text has been freed
  const JsonValue& body;       // a JSON object
  std::shared_ptr<ServedModel> model;
  std::shared_ptr<Responder> responder;
  Pacer& pacer;  // decides when a stream is written to
  bool keeps_billing_header = false;  // AppOptions::keep_billing_header
  ModelPool& models;
  std::string name;  // of the model in the pool
  const MediaPolicy& media;
  std::string_view file = {};  // of a form: the bytes of its file
};


}  // namespace ingot
