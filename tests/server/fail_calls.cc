// Preloaded into the program by faults_test.py and parallel_test.py: makes calls fail as on a machine without
// resources.
//
// FAIL_CALL names a function: accept, socket, connect, epoll_create1, eventfd, pthread_create, isatty, or new (memory).
// With FAIL_AT=N, only its N-th call fails, counted from 1. With FAIL_EVERY=N, each call fails with probability 1/N.
// SIGUSR2 arms and disarms the failures. With FAIL_ARMED=1, they begin armed. Allocations of less than FAIL_BYTES bytes
// (512) never fail, because the destructor of nlohmann's JSON allocates and cannot report an error.
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>

namespace {

std::atomic<bool> armed{false};
std::atomic<long> n_calls{0};
std::atomic<uint64_t> state{88172645463325252u};
const char* wanted = "";
long fail_at = 0, fail_every = 0, fail_bytes = 512;

long number(const char* name) {
  const char* text = std::getenv(name);
  return text ? std::atol(text) : 0;
}

__attribute__((constructor)) void begin() {
  if (const char* text = std::getenv("FAIL_CALL")) wanted = text;
  fail_at = number("FAIL_AT");
  fail_every = number("FAIL_EVERY");
  if (const long bytes = number("FAIL_BYTES"); bytes > 0) fail_bytes = bytes;
  armed = number("FAIL_ARMED") != 0;
  signal(SIGUSR2, [](int) {  // says on stderr that the failures have begun or ended
    constexpr std::string_view kBegin = "calls fail now\n", kEnd = "calls work again\n";
    const std::string_view text = (armed = !armed) ? kBegin : kEnd;
    [[maybe_unused]] const ssize_t n = write(STDERR_FILENO, text.data(), text.size());
  });
}

bool fails(const char* call) {
  if (!armed || std::strcmp(call, wanted) != 0) return false;
  if (fail_every == 0) return ++n_calls == fail_at;
  uint64_t x = state;
  x ^= x << 13, x ^= x >> 7, x ^= x << 17;
  state = x;
  return x % static_cast<uint64_t>(fail_every) == 0;
}

template <class F>
F next(const char* name, F) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

}  // namespace

void* operator new(std::size_t n) {
  void* memory = n >= static_cast<std::size_t>(fail_bytes) && fails("new") ? nullptr : std::malloc(n);
  if (!memory) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

extern "C" {

int accept(int fd, sockaddr* address, socklen_t* length) {
  if (fails("accept")) return errno = EMFILE, -1;
  return next("accept", &accept)(fd, address, length);
}

int accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
  if (fails("accept")) return errno = EMFILE, -1;
  return next("accept4", &accept4)(fd, address, length, flags);
}

int socket(int domain, int type, int protocol) noexcept {
  if (fails("socket")) return errno = EMFILE, -1;
  return next("socket", &socket)(domain, type, protocol);
}

int connect(int fd, const sockaddr* address, socklen_t length) {
  if (fails("connect")) std::_Exit(99);  // no request may cause a connection
  return next("connect", &connect)(fd, address, length);
}

int isatty(int fd) noexcept {
  if (fails("isatty")) std::_Exit(99);  // too many calls
  return next("isatty", &isatty)(fd);
}

int epoll_create1(int flags) noexcept {
  if (fails("epoll_create1")) return errno = EMFILE, -1;
  return next("epoll_create1", &epoll_create1)(flags);
}

int eventfd(unsigned value, int flags) noexcept {
  if (fails("eventfd")) return errno = EMFILE, -1;
  return next("eventfd", &eventfd)(value, flags);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*), void* argument) noexcept {
  if (fails("pthread_create")) return EAGAIN;
  return next("pthread_create", &pthread_create)(thread, attributes, body, argument);
}

}  // extern "C"
