// Our subscription to CUPTI: alone, or beside other tools.
//
// Up to CUDA 13.2 CUPTI serves one tool at a time. From 13.3 on, with a driver of the 610 series or
// later, it serves several if the first asked for that and all use the calls that name their
// subscriber (_v2). So we ask for it where these exist, and use the others if CUPTI refuses: an
// older driver, or a tool that holds CUPTI by the old calls.
//
// Task thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "injector/cupti/loader.h"

namespace tidemark::injector {

class CuptiSubscription {
 public:
  enum class Way : uint8_t { kNone, kAlone, kShared };

  // `functions` must outlive the subscription.
  cupti::CUptiResult open(const CuptiFunctions& functions,
                          cupti::CUpti_CallbackFunc callback) noexcept;
  void close() noexcept;

  Way way() const noexcept { return way_; }
  const CuptiFunctions& functions() const noexcept { return *functions_; }
  cupti::CUpti_SubscriberHandle handle() const noexcept { return handle_; }

  // The activity calls, as the way requires.
  cupti::CUptiResult enable(cupti::CUpti_ActivityKind kind) const noexcept;
  cupti::CUptiResult disable(cupti::CUpti_ActivityKind kind) const noexcept;
  cupti::CUptiResult register_buffers(
      cupti::CUpti_BuffersCallbackRequestFunc request,
      cupti::CUpti_BuffersCallbackCompleteFunc complete) const noexcept;
  cupti::CUptiResult next_record(uint8_t* buffer, size_t bytes,
                                 cupti::CUpti_Activity** record) const noexcept;
  cupti::CUptiResult dropped_records(size_t* dropped) const noexcept;
  cupti::CUptiResult set_attribute(cupti::CUpti_ActivityAttribute name, size_t* size,
                                   void* value) const noexcept;
  cupti::CUptiResult get_attribute(cupti::CUpti_ActivityAttribute name, size_t* size,
                                   void* value) const noexcept;

 private:
  bool open_shared(cupti::CUpti_CallbackFunc callback) noexcept;
  bool is_shared() const noexcept { return way_ == Way::kShared; }

  const CuptiFunctions* functions_ = nullptr;
  cupti::CUpti_SubscriberHandle handle_ = nullptr;
  Way way_ = Way::kNone;
};

}  // namespace tidemark::injector
