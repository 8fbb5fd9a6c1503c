// A socket of ZeroMQ. libzmq is loaded when a program makes its first socket, so programs are built and run without it.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

class ZmqSocket {
 public:
  enum class Kind : int { kPublish = 1, kRouter = 6 };

  // Listens at an endpoint with '*' or of ipc://, such as tcp://*:5557; connects to any other. Throws UsageError if
  // there is no libzmq, or for an endpoint that cannot be used.
  ZmqSocket(Kind kind, const std::string& endpoint);
  ~ZmqSocket();
  ZmqSocket(const ZmqSocket&) = delete;
  ZmqSocket& operator=(const ZmqSocket&) = delete;

  std::string endpoint() const;  // the one that it has: with the port, where any free one was asked for
  // Never waits: what a receiver has no room for is lost.
  void send(const std::vector<std::string_view>& parts);
  // The parts of a message that has come; empty: there is none. Parts longer than 255 bytes are cut.
  std::vector<std::string> receive();

 private:
  void* socket_ = nullptr;
  std::string asked_;
};

}  // namespace ingot
