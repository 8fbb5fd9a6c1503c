// The fields of the samplers that llama.cpp has and OpenAI's API lacks: DRY, XTC, top-n-sigma, dynamic temperature,
// Mirostat 2, and the order of all stages.
#pragma once
#include "server/models/served_model.h"
#include "server/requests/fields.h"

namespace ingot {

// Throws ApiError 400 that names the field.
void read_stages(const Fields& fields, const ServedModel& model, SamplingParams& params);

}  // namespace ingot
