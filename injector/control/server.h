// The control thread, which waits for commands (proto/control.h), and its socket.
//
// It sleeps in poll() without a timeout, so it causes no wake-ups in an idle process. All signals
// are blocked on it. The socket file is removed when the process exits; a killed process leaves it
// behind until somebody notices. A forked child has no control thread and no socket; it gets its
// own when it begins to use CUDA.
#pragma once

namespace tidemark::injector {

// May be called any number of times, on any thread and in any state of the process: starts the
// thread unless this process has it, and returns. Everything else happens on that thread. False:
// the thread could not be started.
bool start_control_server() noexcept;

}  // namespace tidemark::injector
