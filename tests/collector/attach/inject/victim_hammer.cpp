// Threads that hold the locks of malloc and of the loader as often as possible.
#include <dlfcn.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/collector/attach/inject/victim.h"

namespace tidemark::test {

namespace {

std::atomic<bool> g_stop{false};
std::atomic<int> g_broken{0};
std::atomic<long> g_rounds{0};

// Blocks of many sizes, each with its own pattern, checked before it is freed.
void use_malloc(unsigned seed) {
  struct Block {
    unsigned char* bytes;
    size_t size;
    unsigned char pattern;
  };
  std::vector<Block> blocks;
  while (!g_stop) {
    seed = seed * 1103515245 + 12345;
    const size_t size = 16 + (seed >> 8) % (seed % 64 == 0 ? 300000 : 2000);
    const auto pattern = static_cast<unsigned char>(seed >> 16);
    auto* bytes = static_cast<unsigned char*>(std::malloc(size));
    std::memset(bytes, pattern, size);
    blocks.push_back({bytes, size, pattern});
    if (blocks.size() < 64) continue;
    for (const Block& block : blocks) {
      for (size_t i = 0; i < block.size; i += 37) g_broken += block.bytes[i] != block.pattern;
      std::free(block.bytes);
    }
    blocks.clear();
    ++g_rounds;
  }
  for (const Block& block : blocks) std::free(block.bytes);
}

void use_loader() {
  while (!g_stop) {
    void* const library = dlopen("libutil.so.1", RTLD_NOW);
    g_broken += library == nullptr;
    if (library != nullptr) dlclose(library);
    ++g_rounds;
  }
}

void use_kernel() {
  int ends[2];
  g_broken += pipe(ends) != 0;
  uint64_t number = 0;
  while (!g_stop) {
    ++number;
    uint64_t read_back = 0;
    g_broken += write(ends[1], &number, sizeof number) != sizeof number;
    g_broken += read(ends[0], &read_back, sizeof read_back) != sizeof read_back;
    g_broken += read_back != number;
    g_broken += poll(nullptr, 0, number % 64 == 0 ? 1 : 0) != 0;
    ++g_rounds;
  }
  close(ends[0]);
  close(ends[1]);
}

void use_numbers() {
  const double expected = std::sqrt(2.0) * std::sin(1.0);
  while (!g_stop) {
    volatile double two = 2.0;
    volatile double one = 1.0;
    for (int i = 0; i < 1000; ++i) g_broken += std::sqrt(two) * std::sin(one) != expected;
    g_broken += poll(nullptr, 0, 0) != 0;
    ++g_rounds;
  }
}

}  // namespace

int hammer() {
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i) {
    threads.emplace_back(use_malloc, i + 1);
    threads.emplace_back(use_loader);
    threads.emplace_back(use_kernel);
    threads.emplace_back(use_numbers);
  }
  while (go_on()) {
  }
  g_stop = true;
  for (std::thread& thread : threads) thread.join();
  return say_fine(g_broken == 0 && g_rounds > 0);
}

}  // namespace tidemark::test
