// Clean-up when a recording thread ends.
#pragma once

namespace tidemark::injector {

// Once per process, before the first record. Without it (no key left) a thread that ends keeps its
// last chunk until the recording ends.
void prepare_thread_exit() noexcept;

}  // namespace tidemark::injector
