// The thread that waits for commands (proto/control.h), and its socket.
//
// It sleeps in poll() without a timeout: a process that nobody asks anything has not one wake-up
// from it. All signals are blocked on it. The socket goes with the process; of a killed one the
// name stays until somebody meets it. A forked child has no thread and no socket: one that begins
// to use CUDA gets its own.
#pragma once

namespace tidemark::injector {

// Any number of times, from any thread, in any state of the process: starts the thread unless this
// process has it, and returns. Everything else happens on that thread. False: no thread to be had.
bool start_control_server() noexcept;

}  // namespace tidemark::injector
