// A ZeroMQ socket. libzmq is loaded when the program creates its first socket, so ingot builds and runs without libzmq.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

class ZmqSocket {
 public:
  enum class Kind : int { kPublish = 1, kRouter = 6 };

  // Binds to an endpoint with '*' or ipc://, such as tcp://*:5557, and connects to any other endpoint. Throws
  // UsageError without libzmq or if the endpoint is not usable.
  ZmqSocket(Kind kind, const std::string& endpoint);
  ~ZmqSocket();
  ZmqSocket(const ZmqSocket&) = delete;
  ZmqSocket& operator=(const ZmqSocket&) = delete;

  std::string endpoint() const;  // the actual endpoint, with the port number
  // Never blocks. If a receiver's buffer is full, the message is lost for that receiver.
  void send(const std::vector<std::string_view>& parts);
  // Returns the parts of a received message, or nothing if there is no message. Parts longer than 255 bytes are cut.
  std::vector<std::string> receive();

 private:
  void* socket_ = nullptr;
  std::string asked_;
};

}  // namespace ingot
