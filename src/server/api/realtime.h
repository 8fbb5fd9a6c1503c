// /v1/realtime of OpenAI's API, for transcription: a client sends sound over a WebSocket as it is recorded, and gets
// the text of each part that it speaks. The server finds where speech begins and ends (server_vad), or the client
// commits parts itself. The network's thread only puts messages into a queue; a worker reads them, one after another.
#pragma once
#include <memory>

#include "base/workers.h"
#include "server/models/served_model.h"
#include "server/requests/http.h"

namespace ingot {

// Answers the handshake; accept: of accept_socket(). Throws ApiError, and Error if the machine lacks libsamplerate.
// `workers` must outlive the session.
void start_realtime(std::shared_ptr<ServedModel> model, ServedModel::Ticket ticket, HttpHeaders accept,
                    const std::shared_ptr<Responder>& responder, Workers& workers);

}  // namespace ingot
