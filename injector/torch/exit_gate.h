// Keeps questions of our threads away from PyTorch's objects once the process ends: its destructors
// run in exit(), while our threads go on.
#pragma once

namespace tidemark::injector {

// When the bridge has been loaded: what exists by then is destroyed after our exit handler has run.
// The handler waits for questions under way, for a second at most.
void watch_torch_exit() noexcept;

// In scope while PyTorch is asked something on a thread of ours.
class TorchQuestion {
 public:
  TorchQuestion() noexcept;
  ~TorchQuestion();
  TorchQuestion(const TorchQuestion&) = delete;
  TorchQuestion& operator=(const TorchQuestion&) = delete;
  explicit operator bool() const noexcept { return allowed_; }  // false: do not ask any more

 private:
  bool allowed_;
};

}  // namespace tidemark::injector
