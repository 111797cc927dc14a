// The part of torch's header that a listener to named ranges needs.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <unordered_set>

namespace at {

enum class RecordScope { FUNCTION, USER_SCOPE };

struct RecordFunction {
  const char* text;
  const char* name() const { return text; }
  static uint64_t currentThreadId();
};

struct ObserverContext {
  virtual ~ObserverContext() = default;
};

class RecordFunctionCallback {
 public:
  using Start = std::unique_ptr<ObserverContext> (*)(const RecordFunction&);
  using End = void (*)(const RecordFunction&, ObserverContext*);
  RecordFunctionCallback(Start begin, End finish) : start_(begin), end_(finish) {}
  RecordFunctionCallback& scopes(const std::unordered_set<RecordScope>&) { return *this; }
  Start start() const { return start_; }
  End end() const { return end_; }

 private:
  Start start_;
  End end_;
};

unsigned long addGlobalCallback(RecordFunctionCallback callback);

}  // namespace at
