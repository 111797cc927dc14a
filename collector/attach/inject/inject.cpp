#include "collector/attach/inject/inject.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "collector/attach/inject/remote_symbols.h"
#include "collector/attach/inject/target.h"

namespace tidemark::inject {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr uint64_t kStackBytes = 256 << 10;
constexpr uint64_t kDataBytes = 64 << 10;
constexpr auto kSlice = milliseconds(200);           // for one thread to reach a safe call
constexpr auto kBorrowed = std::chrono::seconds(3);  // the longest time that a thread is held

// Delays Ctrl-C until the target is restored.
class SignalsHeld {
 public:
  SignalsHeld() {
    sigset_t held;
    ::sigemptyset(&held);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP}) ::sigaddset(&held, signal);
    ::pthread_sigmask(SIG_BLOCK, &held, &before_);
  }
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;
  ~SignalsHeld() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

// The memory in the target, from low to high addresses:
//   code (executable) | stack | LoaderBlock, pthread_t, path, function's name, signal frame
struct Layout {
  uint64_t base = 0;
  uint64_t code_bytes = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));

  uint64_t size() const { return code_bytes + kStackBytes + kDataBytes; }
  uint64_t stack_top() const { return base + code_bytes + kStackBytes; }
  uint64_t block() const { return stack_top(); }
  uint64_t thread_id() const { return block() + sizeof(LoaderBlock); }
  uint64_t path() const { return thread_id() + 64; }
  uint64_t function(const Injection& i) const { return path() + i.library.size() + 1; }
  uint64_t frame() const { return stack_top() + kDataBytes / 2; }
};

Result<LoaderBlock> find_functions(const RemoteMemory& memory, const Target& target,
                                   uint64_t& create) {
  LoaderBlock block;
  block.flags = RTLD_NOW;
  const auto find = [&](const char* name) { return find_libc_symbol(memory, target.files, name); };
  block.dlopen = find("dlopen");
  block.dlsym = find("dlsym");
  block.dlerror = find("dlerror");
  if (block.dlopen == 0) {
    // glibc up to 2.33 without libdl: the functions that its own iconv uses, with an internal flag.
    constexpr uint64_t kInternal = 0x80000000;
    block.dlopen = find("__libc_dlopen_mode");
    block.dlsym = find("__libc_dlsym");
    block.dlerror = find("getpid");  // a stand-in: there is no error text then
    block.flags |= kInternal;
  }
  block.pthread_self = find("pthread_self");
  block.pthread_detach = find("pthread_detach");
  block.usleep = find("usleep");
  block.munmap = find("munmap");
  create = find("pthread_create");
  const std::pair<const char*, uint64_t> needed[] = {{"dlopen", block.dlopen},
                                                     {"dlsym", block.dlsym},
                                                     {"dlerror", block.dlerror},
                                                     {"pthread_self", block.pthread_self},
                                                     {"pthread_detach", block.pthread_detach},
                                                     {"usleep", block.usleep},
                                                     {"munmap", block.munmap},
                                                     {"pthread_create", create}};
  for (const auto& [name, address] : needed) {
    if (address == 0) {
      return Error{fmt::format("process {}: its C library has no {}", target.pid, name)};
    }
  }
  return block;
}

// The best first: threads that sleep in a safe call, and the main thread, which is busier, last.
std::vector<pid_t> order_threads(pid_t pid, const SafeCalls& calls) {
  std::vector<std::pair<int, pid_t>> ranked;
  for (const pid_t thread : list_threads(pid)) {
    const SystemCall call = waiting_call(pid, thread);
    const bool sleeps = call.number >= 0 && calls.is_safe(call);
    ranked.emplace_back((sleeps ? 0 : 2) + (thread == pid ? 1 : 0), thread);
  }
  std::sort(ranked.begin(), ranked.end());
  std::vector<pid_t> threads;
  for (const auto& [rank, thread] : ranked) threads.push_back(thread);
  return threads;
}

class Injector {
 public:
  Injector(const Target& target, const Injection& injection, const RemoteMemory& memory,
           const LoaderBlock& block, uint64_t create)
      : target_(target),
        injection_(injection),
        memory_(memory),
        block_(block),
        create_(create),
        calls_(target.pid, memory, target.files) {}

  Result<int> run() {
    // In the first round only threads that can restore themselves if this process dies meanwhile.
    for (bool only_known = true;; only_known = false) {
      refused_ = 0;
      entered_any_ = false;
      for (const pid_t thread : order_threads(target_.pid, calls_)) {
        Result<bool> started = try_thread(thread, only_known);
        if (!started) return started.error();
        if (*started) return wait_for_library();
        if (steady_clock::now() >= injection_.deadline) break;
      }
      if (!read_status(target_.pid) || list_threads(target_.pid).empty()) {
        return failed("it has ended");
      }
      if (!entered_any_ && refused_ != 0) return explain_refusal(target_.pid, refused_);
      if (steady_clock::now() >= injection_.deadline) {
        return failed(
            "no thread reached a safe system call in time; nothing was changed, try again");
      }
    }
  }

 private:
  Error failed(const std::string& why) const {
    return Error{fmt::format("{}: {}", process_label(target_.pid, target_.status), why)};
  }

  // False: try another thread.
  Result<bool> try_thread(pid_t id, bool only_known) {
    const SignalsHeld held;
    Tracee thread(target_.pid, id);
    int system_error = 0;
    if (Status seized = thread.seize(system_error); !seized) {
      // This also fails for a thread that is ending: only if all fail is it a refusal.
      if (system_error != ESRCH) refused_ = system_error;
      return false;
    }
    entered_any_ = true;
    const Deadline slice = std::min(injection_.deadline, steady_clock::now() + kSlice);
    Result<bool> safe = thread.reach_safe_point(calls_, slice, only_known);
    if (!safe || !*safe) return false;
    if (Status started = borrow(thread); !started) {
      thread.leave();
      return failed(started.error().message);
    }
    return true;
  }

  Status borrow(Tracee& thread) {
    const Deadline deadline = steady_clock::now() + kBorrowed;
    const auto call = [&](int64_t number, std::array<uint64_t, 6> arguments) -> Result<int64_t> {
      return thread.system_call({number, arguments}, deadline);
    };
    const uint64_t none = ~uint64_t{0};
    const Result<int64_t> base = call(SYS_mmap, {0, layout_.size(), PROT_READ | PROT_WRITE,
                                                 MAP_PRIVATE | MAP_ANONYMOUS, none, 0});
    if (!base) return base.error();
    if (*base < 0) return Error{fmt::format("mmap: {}", std::strerror(static_cast<int>(-*base)))};
    layout_.base = static_cast<uint64_t>(*base);
    Status started = start_thread(thread, call, deadline);
    if (!started && !given_up_) {
      static_cast<void>(call(SYS_munmap, {layout_.base, layout_.size()}));
    }
    return started;
  }

  template <typename Call>
  Status start_thread(Tracee& thread, const Call& call, Deadline deadline) {
    const StubCode stub = stub_code();
    if (!write_data(thread, stub))
      return Error{std::string("cannot write its memory: ") + std::strerror(errno)};
    const Result<int64_t> executable =
        call(SYS_mprotect, {layout_.base, layout_.code_bytes, PROT_READ | PROT_EXEC});
    if (!executable) return executable.error();
    if (*executable < 0) {
      return Error{fmt::format("it is not allowed executable memory (SELinux, seccomp): {}",
                               std::strerror(static_cast<int>(-*executable)))};
    }
    const uint64_t arguments[] = {layout_.thread_id(), 0, layout_.base + stub.thread_offset,
                                  layout_.block()};
    const Result<int64_t> created =
        thread.stub_call(layout_.base + stub.call_offset, layout_.code_bytes, create_, arguments,
                         layout_.stack_top(), layout_.frame(), deadline);
    if (!created) {
      given_up_ = true;  // a thread may have been started all the same
      return created.error();
    }
    const int code = static_cast<int>(*created);
    if (code != 0) return Error{fmt::format("cannot start a thread: {}", std::strerror(code))};
    thread.leave();
    return {};
  }

  bool write_data(const Tracee& thread, const StubCode& stub) {
    block_.mapping = layout_.base;
    block_.mapping_bytes = layout_.size();
    block_.path = layout_.path();
    block_.function = layout_.function(injection_);
    const std::vector<uint8_t> frame = thread.frame_for_return(layout_.frame());
    const auto put = [&](uint64_t address, const void* bytes, size_t size) {
      return memory_.write(address, bytes, size);
    };
    return put(layout_.base, stub.bytes.data(), stub.bytes.size()) &&
           put(layout_.block(), &block_, sizeof block_) &&
           put(block_.path, injection_.library.c_str(), injection_.library.size() + 1) &&
           put(block_.function, injection_.function.c_str(), injection_.function.size() + 1) &&
           put(layout_.frame(), frame.data(), frame.size());
  }

  // The new thread waits for the acknowledgement before it unmaps this memory.
  Result<int> wait_for_library() {
    LoaderBlock now;
    auto pause = milliseconds(1);
    while (true) {
      if (!memory_.read(layout_.block(), now)) return failed("it has ended");
      if (now.stage == kDone) break;
      if (steady_clock::now() >= injection_.deadline) {
        return failed("its loader is busy: the library will be loaded later");
      }
      const timespec wait{0, pause.count() * 1'000'000};
      ::nanosleep(&wait, nullptr);
      pause = std::min(pause * 2, milliseconds(50));
    }
    const bool has_reason = now.error != 0 && (now.flags >> 31) == 0;
    const std::string reason = has_reason ? memory_.text(now.error, 500) : "no reason given";
    const uint64_t yes = 1;
    memory_.write(layout_.block() + offsetof(LoaderBlock, acknowledged), &yes, sizeof yes);
    if (now.error != 0 || now.handle == 0) {
      return failed(fmt::format("cannot load {}: {}", injection_.library, reason));
    }
    return static_cast<int>(now.returned);
  }

  const Target& target_;
  const Injection& injection_;
  const RemoteMemory& memory_;
  LoaderBlock block_;
  uint64_t create_;
  SafeCalls calls_;
  Layout layout_;
  bool given_up_ = false;
  bool entered_any_ = false;
  int refused_ = 0;  // errno of the last thread that could not be seized
};

}  // namespace

Result<int> inject_library(pid_t pid, const Injection& injection) {
  const Result<Target> target = examine_target(pid);
  if (!target) return target.error();
  if (injection.library.size() + injection.function.size() > kDataBytes / 4) {
    return Error{"the path of the library is too long"};
  }
  if (Status visible = check_visible(pid, injection.library); !visible) return visible.error();
  const RemoteMemory memory(pid);
  if (!memory.good()) return explain_refusal(pid, errno);
  uint64_t create = 0;
  const Result<LoaderBlock> block = find_functions(memory, *target, create);
  if (!block) return block.error();
  return Injector(*target, injection, memory, *block, create).run();
}

}  // namespace tidemark::inject
