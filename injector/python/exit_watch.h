// Stops the reading of Python frames before the interpreter frees them.
//
// An interpreter that ends frees the states and frames of all threads but the one that ends it.
// Daemon threads may still run at that time, inside C functions that have released the GIL, such
// as PyTorch's allocator. So an exit function (atexit) makes sure that none of them is reading its
// frames, or begins to:
//
//   a reading thread    walking = true     load the gate      … read …      walking = false
//   the exit function             close the gate   barrier in all threads   wait until none walks
//
// This is the order of operations of recorder/thread_register.h, so reading needs no lock and no
// barrier. Exit functions run before anything is freed, and non-daemon threads have ended by then.
// The last thread can go on reading its own frames.
//
// The exit function is registered by a pending call. The interpreter runs those before the exit
// functions, so that it is enough to have asked. Not covered is an interpreter in which tidemark
// starts while the last of its exit functions runs, or that forgets its exit functions
// (atexit._clear).
#pragma once

#include <atomic>

#include "injector/python/runtime.h"
#include "injector/recorder/thread_writer.h"

namespace tidemark::injector {

// The gate. Not null: only the thread with this state may read its frames.
extern std::atomic<const void*> last_python_thread;

// True when the interpreter will run the exit function; false if it does not run (yet). Any thread.
bool watch_python_exit() noexcept;
void reset_python_exit_watch() noexcept;  // in a forked child

// In scope while a thread reads its own frames.
class PythonWalk {
 public:
  explicit PythonWalk(const PythonRuntime& python) noexcept {
    if (!may_read(python)) [[unlikely]]
      return;
    ThreadWriter* writer = thread_writer;
    if (writer == nullptr) [[unlikely]] {
      writer = register_thread(BlockKind::kStacks);
      if (writer == nullptr) return;
    }
    // A signal handler that allocates, in the middle of a walk.
    if (writer->walking.load(std::memory_order_relaxed)) [[unlikely]]
      return;
    writer->walking.store(true, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    writer_ = writer;
    // Again, now that the exit function waits for this thread.
    if (may_read(python)) [[likely]]
      thread_ = python_thread(python);
  }
  ~PythonWalk() {
    if (writer_ == nullptr) return;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    writer_->walking.store(false, kLeaveOrder);
  }
  PythonWalk(const PythonWalk&) = delete;
  PythonWalk& operator=(const PythonWalk&) = delete;

  // The calling thread's state; null if it has none that can be read.
  const void* thread() const noexcept { return thread_; }
  ThreadWriter& writer() const noexcept { return *writer_; }  // only if there is a state

 private:
  static bool may_read(const PythonRuntime& python) noexcept {
    const void* const last = last_python_thread.load(std::memory_order_acquire);
    return last == nullptr || last == python.this_thread_state();
  }

  ThreadWriter* writer_ = nullptr;
  const void* thread_ = nullptr;
};

}  // namespace tidemark::injector
