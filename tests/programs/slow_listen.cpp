// Preloaded into a process: adds a delay between naming a socket and accepting connections.
#include <dlfcn.h>
#include <sys/socket.h>
#include <time.h>

extern "C" int listen(int fd, int backlog) {
  using Listen = int (*)(int, int);
  static const auto real = reinterpret_cast<Listen>(dlsym(RTLD_NEXT, "listen"));
  const timespec pause{0, 300'000'000};
  nanosleep(&pause, nullptr);
  return real(fd, backlog);
}
