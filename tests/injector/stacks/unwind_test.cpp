// Stacks match libgcc's where that works, and end without a fault where it does not.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unwind.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "injector/stacks/cfi.h"
#include "injector/stacks/elf_facts.h"
#include "injector/stacks/modules.h"
#include "injector/stacks/unwinder.h"

namespace tidemark::injector {
namespace {

// Without memory from the heap: a signal handler unwinds, too.
class Frames {
 public:
  using const_iterator = const uintptr_t*;
  void push_back(uintptr_t address) {
    if (count_ < kMost) addresses_[count_++] = address;
  }
  void drop_first() { std::copy(addresses_ + 1, addresses_ + count_--, addresses_); }
  void drop_last() { --count_; }
  void clear() { count_ = 0; }
  size_t size() const { return count_; }
  uintptr_t back() const { return addresses_[count_ - 1]; }
  const_iterator begin() const { return addresses_; }
  const_iterator end() const { return addresses_ + count_; }
  bool operator==(const Frames& other) const {
    return std::equal(begin(), end(), other.begin(), other.end());
  }

 private:
  static constexpr size_t kMost = 256;
  uintptr_t addresses_[kMost];
  size_t count_ = 0;
};

struct Both {
  Frames ours;
  Frames theirs;
};

// libgcc's unwinder, because sanitizers replace backtrace().
_Unwind_Reason_Code add_frame(_Unwind_Context* context, void* out) {
  static_cast<Frames*>(out)->push_back(_Unwind_GetIP(context));
  return _URC_NO_REASON;
}

// Callers only: the two calls below return to different addresses.
__attribute__((noinline)) Both unwind_both() {
  uintptr_t ours[256];
  const size_t our_count = unwind_here(ours, 256);
  Both both;
  _Unwind_Backtrace(add_frame, &both.theirs);
  both.theirs.drop_first();
  for (size_t i = 2; i < our_count; ++i) both.ours.push_back(ours[i]);
  // Some versions end with a frame without an address.
  while (both.theirs.size() > 0 && both.theirs.back() == 0) both.theirs.drop_last();
  return both;
}

__attribute__((noinline)) Both recurse(int depth) {
  // A frame of varying size, addressed by a frame pointer.
  auto* variable =
      static_cast<volatile char*>(__builtin_alloca(static_cast<size_t>(16 * depth + 16)));
  variable[0] = 1;
  if (depth == 0) return unwind_both();
  Both both = recurse(depth - 1);
  variable[1] = 2;
  return both;
}

TEST(CaptureUnwind, AgreesWithLibgcc) {
  const Both both = recurse(20);
  ASSERT_GT(both.ours.size(), 20u);
  EXPECT_EQ(both.ours, both.theirs);
}

TEST(CaptureUnwind, AgreesOnOtherThreads) {
  Both both;
  std::thread([&] { both = recurse(5); }).join();
  ASSERT_GT(both.ours.size(), 5u);
  EXPECT_EQ(both.ours, both.theirs);
}

int compare_while_unwinding(const void* a, const void* b, void* context) {
  *static_cast<Both*>(context) = recurse(2);
  return *static_cast<const int*>(a) - *static_cast<const int*>(b);
}

TEST(CaptureUnwind, AgreesThroughLibc) {
  Both both;
  int numbers[] = {2, 1};
  qsort_r(numbers, 2, sizeof(int), compare_while_unwinding, &both);
  ASSERT_GT(both.ours.size(), 4u);
  EXPECT_EQ(both.ours, both.theirs);
}

// Over-aligned locals make the compiler realign the stack, which is described with expressions.
__attribute__((noinline)) Both realigned(int depth) {
  alignas(128) volatile char aligned[256];
  aligned[0] = static_cast<char>(depth);
  Both both = depth == 0 ? recurse(1) : realigned(depth - 1);
  if (aligned[0] != static_cast<char>(depth)) both.ours.clear();
  return both;
}

TEST(CaptureUnwind, AgreesThroughRealignedFrames) {
  const Both both = realigned(3);
  ASSERT_GT(both.ours.size(), 5u);
  EXPECT_EQ(both.ours, both.theirs);
}

Both g_in_handler;
void handler(int) {
  g_in_handler = recurse(1);
}

TEST(CaptureUnwind, ContinuesThroughASignalHandler) {
  struct sigaction action {};
  action.sa_handler = handler;
  struct sigaction before {};
  ASSERT_EQ(sigaction(SIGUSR2, &action, &before), 0);
  raise(SIGUSR2);
  sigaction(SIGUSR2, &before, nullptr);
  ASSERT_GT(g_in_handler.ours.size(), 6u);
  EXPECT_EQ(g_in_handler.ours, g_in_handler.theirs);
}

ucontext_t g_main_context;
ucontext_t g_fiber_context;
Both g_on_fiber;
void fiber() {
  g_on_fiber = recurse(3);
  swapcontext(&g_fiber_context, &g_main_context);
}

TEST(CaptureUnwind, WorksOnAFiber) {
  constexpr size_t kBytes = 256 << 10;
  void* stack = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(stack, MAP_FAILED);
  ASSERT_EQ(getcontext(&g_fiber_context), 0);
  g_fiber_context.uc_stack.ss_sp = stack;
  g_fiber_context.uc_stack.ss_size = kBytes;
  g_fiber_context.uc_link = nullptr;
  makecontext(&g_fiber_context, fiber, 0);
  swapcontext(&g_main_context, &g_fiber_context);
  EXPECT_GE(g_on_fiber.ours.size(), 5u);
  munmap(stack, kBytes);
}

__attribute__((noinline)) size_t capture_deep(int depth, NativeStack& stack) {
  volatile size_t result = 0;
  if (depth == 0) {
    capture_native_stack(stack);
    result = stack.count;
  } else {
    result = capture_deep(depth - 1, stack);
  }
  return result;
}

TEST(CaptureUnwind, DeepStacksKeepTheirInnermostFrames) {
  NativeStack stack;
  EXPECT_EQ(capture_deep(200, stack), kMaxNativeFrames);
}

TEST(CaptureUnwind, OffsetsAreThoseOfTheFile) {
  NativeStack stack;
  capture_deep(1, stack);
  ASSERT_GE(stack.count, 3u);
  Dl_info info{};
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&capture_native_stack), &info), 0);
  const auto start = reinterpret_cast<uintptr_t>(&capture_native_stack) -
                     reinterpret_cast<uintptr_t>(info.dli_fbase);
  EXPECT_GE(stack.frames[0].offset, start);
  EXPECT_LT(stack.frames[0].offset, start + 4096);
  EXPECT_EQ(stack.frames[0].kind, FrameKind::kNative);
  EXPECT_EQ(stack.owner, Owner::kProgram);
}

// Functions with wrong unwind tables. They call `unwind`.
extern "C" {
size_t g_broken_count = 0;
void unwind_in_broken_frame() {
  uintptr_t pcs[64];
  g_broken_count = unwind_here(pcs, 64);
}
void broken_frame_wild();
void broken_frame_low();
void broken_frame_loop();
}

#if defined(__x86_64__)
#define FUNCTION_WITH_CFI(name, cfi)                                                      \
  asm(".text\n.globl " #name "\n.type " #name ", @function\n" #name                       \
      ":\n.cfi_startproc\n"                                                               \
      "subq $8, %rsp\n.cfi_adjust_cfa_offset 8\n" cfi                                     \
      "\ncall unwind_in_broken_frame@PLT\naddq $8, %rsp\nret\n.cfi_endproc\n.size " #name \
      ", .-" #name "\n")
FUNCTION_WITH_CFI(broken_frame_wild, ".cfi_def_cfa rbp, 0x7ffffff0");
FUNCTION_WITH_CFI(broken_frame_low, ".cfi_def_cfa rsp, -4096");
FUNCTION_WITH_CFI(broken_frame_loop, ".cfi_same_value rip\n.cfi_def_cfa rsp, 0");
#else
#define FUNCTION_WITH_CFI(name, cfi)                                                          \
  asm(".text\n.globl " #name "\n.type " #name ", %function\n" #name                           \
      ":\n.cfi_startproc\n"                                                                   \
      "stp x29, x30, [sp, #-16]!\n.cfi_def_cfa_offset 16\n.cfi_offset 29, -16\n"              \
      ".cfi_offset 30, -8\n" cfi                                                              \
      "\nbl unwind_in_broken_frame\nldp x29, x30, [sp], #16\nret\n.cfi_endproc\n.size " #name \
      ", .-" #name "\n")
FUNCTION_WITH_CFI(broken_frame_wild, ".cfi_def_cfa x29, 0x7ffffff0");
FUNCTION_WITH_CFI(broken_frame_low, ".cfi_def_cfa sp, -4096");
FUNCTION_WITH_CFI(broken_frame_loop, ".cfi_same_value x30\n.cfi_def_cfa sp, 0");
#endif

TEST(CaptureUnwind, FalseTablesEndTheStackAndNothingElse) {
  for (void (*function)() : {broken_frame_wild, broken_frame_low, broken_frame_loop}) {
    g_broken_count = 0;
    function();
    EXPECT_GE(g_broken_count, 2u);
    EXPECT_LE(g_broken_count, 64u);
  }
}

// An undefined opcode, on which libgcc would call abort(). The linker rejects such a function, so
// its tables are made by hand: a search table, a CIE and an FDE.
TEST(CaptureUnwind, UnknownOpcodesAreNotFollowed) {
  alignas(8) uint8_t bytes[128] = {};
  const auto put32 = [&](size_t at, uint32_t value) { std::memcpy(bytes + at, &value, 4); };
  const uint8_t header[] = {1, 0x1b, 0x03, 0x3b};  // version, pcrel sdata4, udata4, datarel sdata4
  std::memcpy(bytes, header, sizeof header);
  put32(4, 28);   // to .eh_frame
  put32(8, 1);    // one entry:
  put32(12, 96);  // the function begins at header + 96
  put32(16, 56);  // its FDE is at header + 56
  put32(32, 20);  // CIE: length
  const uint8_t cie[] = {1,
                         'z',
                         'R',
                         0,
                         1,
                         0x78,
                         static_cast<uint8_t>(kReturnRegister),
                         1,
                         0x1b,
                         0x0c,
                         static_cast<uint8_t>(kStackRegister),
                         16};
  std::memcpy(bytes + 40, cie, sizeof cie);
  put32(56, 20);       // FDE: length
  put32(60, 60 - 32);  // back to the CIE
  put32(64, 96 - 64);  // begins
  put32(68, 32);       // bytes
  bytes[72] = 0;       // no augmentation data
  const auto base = reinterpret_cast<uintptr_t>(bytes);
  const UnwindTables tables{bytes, bytes, bytes + sizeof bytes};
  FrameRules rules;
  ASSERT_TRUE(find_frame_rules(tables, base + 100, rules));
  EXPECT_EQ(rules.cfa.value, 16);
  EXPECT_FALSE(find_frame_rules(tables, base + 128, rules)) << "after the function";
  EXPECT_FALSE(find_frame_rules(tables, base + 90, rules)) << "before it";
  bytes[73] = 0x3e;
  EXPECT_FALSE(find_frame_rules(tables, base + 100, rules));
}

// Generated code has no tables: the walk continues if it keeps a frame pointer.
TEST(CaptureUnwind, GeneratedCodeWithAFramePointer) {
#if defined(__x86_64__)
  // push rbp; mov rbp, rsp; call rdi; pop rbp; ret
  const uint8_t code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
#else
  // stp x29, x30, [sp, #-16]!; mov x29, sp; blr x0; ldp x29, x30, [sp], #16; ret
  const uint32_t code[] = {0xa9bf7bfd, 0x910003fd, 0xd63f0000, 0xa8c17bfd, 0xd65f03c0};
#endif
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  std::memcpy(page, code, sizeof code);
  ASSERT_EQ(mprotect(page, 4096, PROT_READ | PROT_EXEC), 0);
  __builtin___clear_cache(static_cast<char*>(page), static_cast<char*>(page) + 4096);
  static uintptr_t pcs[64];
  static size_t count;
  count = 0;
  using Generated = void (*)(void (*)());
  reinterpret_cast<Generated>(page)([] { count = unwind_here(pcs, 64); });
  const auto start = reinterpret_cast<uintptr_t>(page);
  size_t inside = count;
  for (size_t i = 0; i < count; ++i) {
    if (pcs[i] >= start && pcs[i] < start + 4096) inside = i;
  }
  ASSERT_LT(inside, count) << "the generated frame itself was found";
  EXPECT_GT(count, inside + 3) << "and its callers";
  munmap(page, 4096);
}

// Byte by byte: a segment contains bytes that the address sanitizer forbids to read.
__attribute__((no_sanitize("address"))) std::vector<uint8_t> copy_of(const uint8_t* begin,
                                                                     const uint8_t* end) {
  std::vector<uint8_t> out(static_cast<size_t>(end - begin));
  for (size_t i = 0; i < out.size(); ++i) {
    out.data()[i] = *const_cast<const volatile uint8_t*>(begin + i);
  }
  return out;
}

// The tables of this program with random damage: any result, but no fault and no read outside.
TEST(CaptureUnwind, DamagedTablesNeverFault) {
  UnwindTables tables;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        *static_cast<UnwindTables*>(out) = ElfFacts(*info).unwind_tables();
        return 1;
      },
      &tables);
  ASSERT_NE(tables.header, nullptr);
  const auto size = static_cast<size_t>(tables.segment_end - tables.segment_begin);
  const auto header = static_cast<size_t>(tables.header - tables.segment_begin);
  const std::vector<uint8_t> whole = copy_of(tables.segment_begin, tables.segment_end);
  std::mt19937 random(7);
  const auto pc = reinterpret_cast<uintptr_t>(&recurse) + 8;
  for (int round = 0; round < 300; ++round) {
    std::vector<uint8_t> copy = whole;
    for (int i = 0; i < 400; ++i) {
      copy[header + random() % (size - header)] = static_cast<uint8_t>(random());
    }
    const UnwindTables damaged{copy.data() + header, copy.data(), copy.data() + size};
    for (int k = 0; k < 20; ++k) {
      FrameRules rules;
      // Addresses in a copy are relative to the copy: shift the program counter, too.
      const uintptr_t moved = pc - reinterpret_cast<uintptr_t>(tables.segment_begin) +
                              reinterpret_cast<uintptr_t>(copy.data()) + random() % 4096;
      if (!find_frame_rules(damaged, moved, rules)) continue;
      Registers registers;
      registers.value[kStackRegister] = reinterpret_cast<uintptr_t>(&rules);
      registers.pc = moved;
      StackMemory memory(registers.value[kStackRegister]);
      step(damaged, rules, memory, registers);
    }
  }
}

TEST(CaptureUnwind, UnreadableMemoryIsSeenBeforeItIsRead) {
  constexpr size_t kPage = 64 << 10;  // at least one page on every system
  auto* pages = static_cast<char*>(
      mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(static_cast<void*>(pages), MAP_FAILED);
  ASSERT_EQ(mprotect(pages + kPage, kPage, PROT_NONE), 0);
  const auto start = reinterpret_cast<uintptr_t>(pages);
  StackMemory memory(start + 256);
  uint64_t word = 1;
  EXPECT_TRUE(memory.read(start + 512, word));
  EXPECT_EQ(word, 0u);
  EXPECT_TRUE(memory.read(start + kPage - 8, word));
  EXPECT_FALSE(memory.read(start + kPage, word));
  EXPECT_FALSE(memory.read(start + 513, word)) << "not aligned";
  EXPECT_FALSE(memory.read(start, word)) << "below the stack pointer";
  EXPECT_FALSE(memory.read(~uintptr_t{0} - 7, word));
  munmap(pages, 2 * kPage);
}

// Also behind a frame that is larger than a piece, as the frames of callbacks are.
TEST(CaptureUnwind, EachPieceOfTheStackIsProbedOnce) {
  alignas(4096) static char stack[16 * 4096];
  const auto start = reinterpret_cast<uintptr_t>(stack);
  StackMemory memory(start + 256);
  uint64_t word = 0;
  EXPECT_TRUE(memory.read(start + 512, word));
  EXPECT_EQ(memory.probes(), 0u) << "this code runs there";
  for (uintptr_t at = start + 5 * 4096; at < start + 8 * 4096; at += 64) {
    EXPECT_TRUE(memory.read(at, word));
  }
  EXPECT_EQ(memory.probes(), 3u);
}

int count_frames(void* context) {
  uintptr_t pcs[64];
  *static_cast<size_t*>(context) = unwind_here(pcs, 64);
  return 0;
}

// Threads unwind through a library while others load and unload it. Each stack is complete, unless
// its thread could not read the list of libraries in time.
TEST(CaptureUnwind, WhileLibrariesComeAndGo) {
  const uint64_t stale = stale_module_views();
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> bad{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (!stop.load()) {
        void* library = dlopen(TIDEMARK_CAPTURE_PLUGIN, RTLD_NOW);
        if (library == nullptr) return bad.fetch_add(1), void();
        using Call = int (*)(int (*)(void*), void*);
        const auto call = reinterpret_cast<Call>(dlsym(library, "plugin_call"));
        size_t frames = 0;
        call(count_frames, &frames);
        if (frames < 5) bad.fetch_add(1);
        dlclose(library);
      }
    });
  }
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (!stop.load()) {
        const Both both = recurse(3);
        if (both.ours.size() < 6) bad.fetch_add(1);
      }
    });
  }
  for (int i = 0; i < 2000; ++i) {
    const Both both = recurse(2);
    if (both.ours != both.theirs) bad.fetch_add(1);
  }
  stop.store(true);
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(bad.load(), stale_module_views() - stale);
}

// Readers that hold every list of libraries leave the next one without any. It must not use rules
// found with an older list either: another library may be there by now.
TEST(CaptureUnwind, WithoutAListOfLibrariesThereIsOneFrame) {
  std::vector<std::unique_ptr<ModuleView>> readers;
  void* library = nullptr;
  size_t frames = 0;
  const uint64_t stale = stale_module_views();
  for (int i = 0; i < 64 && stale_module_views() == stale; ++i) {
    EXPECT_GE(recurse(3).ours.size(), 4u);
    readers.push_back(std::make_unique<ModuleView>());
    if (library == nullptr) {
      library = dlopen(TIDEMARK_CAPTURE_PLUGIN, RTLD_NOW);
    } else {
      dlclose(std::exchange(library, nullptr));
    }
    count_frames(&frames);
  }
  EXPECT_GT(stale_module_views(), stale);
  EXPECT_EQ(frames, 1u);
  if (library != nullptr) dlclose(library);
}

TEST(CaptureModules, KnowsTheProgramAndLibc) {
  const ModuleView view;
  const LoadedModule* program = view.find(reinterpret_cast<uintptr_t>(&recurse));
  const LoadedModule* libc = view.find(reinterpret_cast<uintptr_t>(dlsym(RTLD_DEFAULT, "qsort_r")));
  ASSERT_NE(program, nullptr);
  ASSERT_NE(libc, nullptr);
  EXPECT_NE(program, libc);
  EXPECT_EQ(libc->verdict.role, ModuleRole::kSilent);
  EXPECT_EQ(program->verdict.owner, Owner::kProgram);
  EXPECT_EQ(view.find(0), nullptr);
  EXPECT_EQ(view.find(~uintptr_t{0}), nullptr);
  int local = 0;
  EXPECT_EQ(view.find(reinterpret_cast<uintptr_t>(&local)), nullptr);
}

TEST(CaptureModules, BuildIdIsTheLinkersOwn) {
  std::string found;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        if (std::strstr(info->dlpi_name, "libc.so") == nullptr) return 0;
        char buffer[kMaxBuildIdText];
        *static_cast<std::string*>(out) = ElfFacts(*info).build_id(buffer);
        return 1;
      },
      &found);
  EXPECT_EQ(found.size(), 40u) << found;
  EXPECT_EQ(found.find_first_not_of("0123456789abcdef"), std::string::npos);
}

TEST(CaptureModules, FindsTheRangeOfFunctionsByPrefix) {
  CodeRange range;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        if (std::strstr(info->dlpi_name, "libc.so") == nullptr) return 0;
        *static_cast<CodeRange*>(out) = ElfFacts(*info).functions_named("pthread_", "sem_");
        return 1;
      },
      &range);
  // By default the sanitizer's own function would be found.
  void* libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(libc, nullptr);
  const auto inside = reinterpret_cast<uintptr_t>(dlsym(libc, "pthread_self"));
  EXPECT_GE(inside, range.begin);
  EXPECT_LT(inside, range.end);
}

}  // namespace
}  // namespace tidemark::injector
