// Linked without a dynamic loader.
#include <unistd.h>

#include <cstdio>

int main() {
  std::puts("ready");
  std::fflush(stdout);
  char byte = 0;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  std::puts("fine");
}
