// Functions whose names, files and lines the tests know.
#include <cstdint>

namespace harbour {

// Not exported: only in the full symbol table.
static __attribute__((noinline)) int hidden_tide(int x) {
  return x * 3 + 1;
}

template <typename T>
struct Buoy {
  __attribute__((noinline)) int ring(T times) const;
};
template <typename T>
int Buoy<T>::ring(T times) const {
  return static_cast<int>(times) + 7;
}
template struct Buoy<long>;

static inline __attribute__((always_inline)) int ripple(volatile int* water) {
  *water = *water + 1;
  return *water;
}

__attribute__((noinline)) int exported_tide(int x, volatile int* water) {
  return ripple(water) + hidden_tide(x);
}

}  // namespace harbour

extern "C" void named_code(uintptr_t* hidden, uintptr_t* exported, uintptr_t* member) {
  *hidden = reinterpret_cast<uintptr_t>(&harbour::hidden_tide);
  *exported = reinterpret_cast<uintptr_t>(&harbour::exported_tide);
  int (harbour::Buoy<long>::*ring)(long) const = &harbour::Buoy<long>::ring;
  __builtin_memcpy(member, &ring, sizeof *member);
}

asm(".text\n"
    ".globl hand_written\n"
    ".type hand_written, %function\n"
    "hand_written:\n"
    "  nop\n  nop\n  nop\n  nop\n  nop\n  nop\n  nop\n  nop\n");
