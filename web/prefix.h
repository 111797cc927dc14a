// Included before every file of the page: what libc++ 13, which comes with Emscripten 3.1.6, lacks of
// C++20.
#pragma once

#ifdef __cplusplus
#include <atomic>

#if _LIBCPP_VERSION < 190000
namespace std {

// For a program with one thread.
template <typename T>
class atomic_ref {
 public:
  explicit atomic_ref(T& value) : value_(&value) {}
  void store(T value, memory_order = memory_order_seq_cst) const { *value_ = value; }
  T load(memory_order = memory_order_seq_cst) const { return *value_; }

 private:
  T* value_;
};

}  // namespace std
#endif
#endif
