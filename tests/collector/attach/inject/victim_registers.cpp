// Patterns in every register that a system call preserves: after the thread was borrowed, all of
// them must be restored.
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

#include "tests/collector/attach/inject/victim.h"

namespace tidemark::test {

namespace {

struct Pattern {
  uint64_t words[128];
};

struct Exchange {
  Pattern in;
  Pattern out;
};
static_assert(sizeof(Pattern) == 1024);

#if defined(__aarch64__)
constexpr size_t kGeneral = 22;  // x5 … x7, x9 … x17, x19 … x27, x30

// ppoll(nullptr, 0, {0, 0}, nullptr) with patterns in all registers; stores their values
// afterwards.
void call_with(Exchange& exchange) {
  const long zero_time[2] = {0, 0};
  register Exchange* place asm("x28") = &exchange;
  register long x0 asm("x0") = 0;
  register const long* x2 asm("x2") = zero_time;
  asm volatile(
      "ldp q0, q1, [x28, #512]\n ldp q2, q3, [x28, #544]\n ldp q4, q5, [x28, #576]\n"
      "ldp q6, q7, [x28, #608]\n ldp q8, q9, [x28, #640]\n ldp q10, q11, [x28, #672]\n"
      "ldp q12, q13, [x28, #704]\n ldp q14, q15, [x28, #736]\n ldp q16, q17, [x28, #768]\n"
      "ldp q18, q19, [x28, #800]\n ldp q20, q21, [x28, #832]\n ldp q22, q23, [x28, #864]\n"
      "ldp q24, q25, [x28, #896]\n ldp q26, q27, [x28, #928]\n ldp q28, q29, [x28, #960]\n"
      "ldp q30, q31, [x28, #992]\n"
      "ldp x5, x6, [x28, #0]\n ldp x7, x9, [x28, #16]\n ldp x10, x11, [x28, #32]\n"
      "ldp x12, x13, [x28, #48]\n ldp x14, x15, [x28, #64]\n ldp x16, x17, [x28, #80]\n"
      "ldp x20, x21, [x28, #96]\n ldp x22, x23, [x28, #112]\n ldp x24, x25, [x28, #128]\n"
      "ldp x26, x27, [x28, #144]\n ldp x19, x30, [x28, #160]\n"
      "mov x1, #0\n mov x3, #0\n mov x4, #0\n mov x8, #73\n"
      "svc #0\n"
      "add x1, x28, #1024\n"
      "stp x5, x6, [x1, #0]\n stp x7, x9, [x1, #16]\n stp x10, x11, [x1, #32]\n"
      "stp x12, x13, [x1, #48]\n stp x14, x15, [x1, #64]\n stp x16, x17, [x1, #80]\n"
      "stp x20, x21, [x1, #96]\n stp x22, x23, [x1, #112]\n stp x24, x25, [x1, #128]\n"
      "stp x26, x27, [x1, #144]\n stp x19, x30, [x1, #160]\n"
      "stp q0, q1, [x1, #512]\n stp q2, q3, [x1, #544]\n stp q4, q5, [x1, #576]\n"
      "stp q6, q7, [x1, #608]\n stp q8, q9, [x1, #640]\n stp q10, q11, [x1, #672]\n"
      "stp q12, q13, [x1, #704]\n stp q14, q15, [x1, #736]\n stp q16, q17, [x1, #768]\n"
      "stp q18, q19, [x1, #800]\n stp q20, q21, [x1, #832]\n stp q22, q23, [x1, #864]\n"
      "stp q24, q25, [x1, #896]\n stp q26, q27, [x1, #928]\n stp q28, q29, [x1, #960]\n"
      "stp q30, q31, [x1, #992]\n"
      : "+r"(x0)
      : "r"(place), "r"(x2)
      : "x1", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15",
        "x16", "x17", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x30", "v0",
        "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14",
        "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27",
        "v28", "v29", "v30", "v31", "memory");
  if (x0 != 0) exchange.out.words[0] = ~exchange.in.words[0];
}
#else
constexpr size_t kGeneral = 7;  // rbx, r8, r9, r13, r14, r15, r10

__attribute__((target("avx"))) void call_with(Exchange& exchange) {
  long result = 0;
  // poll(nullptr, 0, 0): rdi, rsi, rdx.
  asm volatile(
      "vmovups 512(%[from]), %%ymm0\n vmovups 544(%[from]), %%ymm1\n"
      "vmovups 576(%[from]), %%ymm2\n vmovups 608(%[from]), %%ymm3\n"
      "vmovups 640(%[from]), %%ymm4\n vmovups 672(%[from]), %%ymm5\n"
      "vmovups 704(%[from]), %%ymm6\n vmovups 736(%[from]), %%ymm7\n"
      "vmovups 768(%[from]), %%ymm8\n vmovups 800(%[from]), %%ymm9\n"
      "vmovups 832(%[from]), %%ymm10\n vmovups 864(%[from]), %%ymm11\n"
      "vmovups 896(%[from]), %%ymm12\n vmovups 928(%[from]), %%ymm13\n"
      "vmovups 960(%[from]), %%ymm14\n vmovups 992(%[from]), %%ymm15\n"
      "mov 0(%[from]), %%rbx\n mov 8(%[from]), %%r8\n mov 16(%[from]), %%r9\n"
      "mov 24(%[from]), %%r13\n mov 32(%[from]), %%r14\n mov 40(%[from]), %%r15\n"
      "mov 48(%[from]), %%r10\n"
      "xor %%edi, %%edi\n xor %%esi, %%esi\n xor %%edx, %%edx\n mov $7, %%eax\n"
      "syscall\n"
      "lea 1024(%[from]), %%rdi\n"
      "mov %%rbx, 0(%%rdi)\n mov %%r8, 8(%%rdi)\n mov %%r9, 16(%%rdi)\n"
      "mov %%r13, 24(%%rdi)\n mov %%r14, 32(%%rdi)\n mov %%r15, 40(%%rdi)\n"
      "mov %%r10, 48(%%rdi)\n"
      "vmovups %%ymm0, 512(%%rdi)\n vmovups %%ymm1, 544(%%rdi)\n"
      "vmovups %%ymm2, 576(%%rdi)\n vmovups %%ymm3, 608(%%rdi)\n"
      "vmovups %%ymm4, 640(%%rdi)\n vmovups %%ymm5, 672(%%rdi)\n"
      "vmovups %%ymm6, 704(%%rdi)\n vmovups %%ymm7, 736(%%rdi)\n"
      "vmovups %%ymm8, 768(%%rdi)\n vmovups %%ymm9, 800(%%rdi)\n"
      "vmovups %%ymm10, 832(%%rdi)\n vmovups %%ymm11, 864(%%rdi)\n"
      "vmovups %%ymm12, 896(%%rdi)\n vmovups %%ymm13, 928(%%rdi)\n"
      "vmovups %%ymm14, 960(%%rdi)\n vmovups %%ymm15, 992(%%rdi)\n"
      : "=&a"(result)
      : [from] "r"(&exchange)
      : "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r13", "r14", "r15", "ymm0",
        "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7", "ymm8", "ymm9", "ymm10", "ymm11",
        "ymm12", "ymm13", "ymm14", "ymm15", "memory");
  if (result != 0) exchange.out.words[0] = ~exchange.in.words[0];
}
#endif

}  // namespace

int hold_registers() {
  Exchange exchange{};
  uint64_t seed = 1;
  bool fine = true;
  while (go_on()) {
    for (int i = 0; i < 2000; ++i) {
      for (uint64_t& word : exchange.in.words) {
        word = seed = seed * 6364136223846793005u + 1442695040888963407u;
      }
      // Those without a register.
      std::memcpy(&exchange.out, &exchange.in, sizeof exchange.in);
      std::memset(&exchange.out, 0, kGeneral * sizeof(uint64_t));
      std::memset(&exchange.out.words[64], 0, 64 * sizeof(uint64_t));
      call_with(exchange);
      fine = fine && std::memcmp(&exchange.in, &exchange.out, sizeof exchange.in) == 0;
    }
  }
  return say_fine(fine);
}

}  // namespace tidemark::test
