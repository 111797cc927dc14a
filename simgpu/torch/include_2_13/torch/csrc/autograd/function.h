// The part of torch's header that asks for the running node, as in torch 2.13: a node counts its
// own references, and a pointer to it is one word.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace c10 {

class intrusive_ptr_target {
 public:
  virtual ~intrusive_ptr_target() = default;
  std::atomic<long> references{0};
};

template <typename T>
class intrusive_ptr {
 public:
  intrusive_ptr() = default;
  explicit intrusive_ptr(T* target) : target_(target) { retain(); }
  intrusive_ptr(const intrusive_ptr& other) : target_(other.target_) { retain(); }
  intrusive_ptr& operator=(intrusive_ptr other) {
    std::swap(target_, other.target_);
    return *this;
  }
  ~intrusive_ptr() {
    if (target_ != nullptr && target_->references.fetch_sub(1) == 1) delete target_;
  }
  explicit operator bool() const { return target_ != nullptr; }
  T& operator*() const { return *target_; }

 private:
  void retain() {
    if (target_ != nullptr) target_->references.fetch_add(1);
  }
  T* target_ = nullptr;
};

}  // namespace c10

namespace torch::autograd {

struct __attribute__((visibility("default"))) Node : c10::intrusive_ptr_target {
  Node();
  ~Node() override;
  uint64_t sequence_nr() const { return sequence; }
  uint64_t thread_id() const { return thread; }
  uint64_t sequence = 0;
  uint64_t thread = 0;
};

c10::intrusive_ptr<Node> get_current_node();

}  // namespace torch::autograd
