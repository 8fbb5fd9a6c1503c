#include "server/models/zeromq.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "base/error.h"
#include "base/shared_library.h"

namespace ingot {
namespace {

// libzmq's interface, the same in all versions 4.x.
constexpr int kSendLimit = 23, kLinger = 17, kLastEndpoint = 32, kMoreToCome = 13;  // socket options
constexpr int kDontWait = 1, kSendMore = 2;
constexpr const char* kNames[] = {"libzmq.so.5", "libzmq.dll"};
constexpr int kMessages = 100'000;  // most messages that wait for a slow receiver

struct Library {
  void* (*new_context)() = nullptr;
  void* (*new_socket)(void*, int) = nullptr;
  int (*close)(void*) = nullptr;
  int (*bind)(void*, const char*) = nullptr;
  int (*connect)(void*, const char*) = nullptr;
  int (*set_option)(void*, int, const void*, size_t) = nullptr;
  int (*get_option)(void*, int, void*, size_t*) = nullptr;
  int (*send)(void*, const void*, size_t, int) = nullptr;
  int (*receive)(void*, void*, size_t, int) = nullptr;
  int (*last_error)() = nullptr;
  const char* (*error_text)(int) = nullptr;
  void* context = nullptr;
};

Library load_library() {
  Library l;
  void* handle = nullptr;
  for (const char* name : kNames)
    if (handle == nullptr) handle = open_library(name);
  if (handle == nullptr) return l;
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(function_of(handle, name));
    return function != nullptr;
  };
  if (find("zmq_ctx_new", l.new_context) && find("zmq_socket", l.new_socket) && find("zmq_close", l.close) &&
      find("zmq_bind", l.bind) && find("zmq_connect", l.connect) && find("zmq_setsockopt", l.set_option) &&
      find("zmq_getsockopt", l.get_option) && find("zmq_send", l.send) && find("zmq_recv", l.receive) &&
      find("zmq_errno", l.last_error) && find("zmq_strerror", l.error_text))
    l.context = l.new_context();
  return l;
}

const Library& library() {
  static const Library loaded = load_library();
  if (loaded.context == nullptr)
    throw UsageError(
        "events of the KV cache need ZeroMQ's library, libzmq.so.5 (on Windows libzmq.dll): install libzmq5");
  return loaded;
}

bool listens(const std::string& endpoint) {
  return endpoint.find('*') != endpoint.npos || endpoint.starts_with("ipc://");
}

}  // namespace

ZmqSocket::ZmqSocket(Kind kind, const std::string& endpoint) : asked_(endpoint) {
  const Library& zmq = library();
  socket_ = zmq.new_socket(zmq.context, static_cast<int>(kind));
  const int none = 0;
  const bool ready = socket_ != nullptr && zmq.set_option(socket_, kLinger, &none, sizeof(none)) == 0 &&
                     zmq.set_option(socket_, kSendLimit, &kMessages, sizeof(kMessages)) == 0 &&
                     (listens(endpoint) ? zmq.bind : zmq.connect)(socket_, endpoint.c_str()) == 0;
  if (ready) return;
  const std::string why = zmq.error_text(zmq.last_error());
  if (socket_ != nullptr) zmq.close(socket_);
  throw UsageError("{}: {} (give an endpoint such as tcp://*:5557)", printable(endpoint), why);
}

ZmqSocket::~ZmqSocket() { library().close(socket_); }

std::string ZmqSocket::endpoint() const {
  std::array<char, 256> text{};
  size_t size = text.size();
  return library().get_option(socket_, kLastEndpoint, text.data(), &size) == 0 ? text.data() : asked_;
}

void ZmqSocket::send(const std::vector<std::string_view>& parts) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const int more = i + 1 < parts.size() ? kSendMore : 0;
    if (library().send(socket_, parts[i].data(), parts[i].size(), kDontWait | more) < 0) return;
  }
}

std::vector<std::string> ZmqSocket::receive() {
  std::vector<std::string> parts;
  for (int more = 1; more != 0;) {
    std::array<char, 255> part{};
    const int n = library().receive(socket_, part.data(), part.size(), kDontWait);
    if (n < 0) break;
    parts.emplace_back(part.data(), std::min(static_cast<size_t>(n), part.size()));
    size_t size = sizeof(more);
    if (library().get_option(socket_, kMoreToCome, &more, &size) != 0) break;
  }
  return parts;
}

}  // namespace ingot
