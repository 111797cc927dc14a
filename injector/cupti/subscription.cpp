#include "injector/cupti/subscription.h"

#include <atomic>

namespace tidemark::injector {

using namespace cupti;

namespace {

constexpr uint32_t kStreamIsUnknown = 0;

// The buffers of the one recording, for the callbacks of the other form.
std::atomic<CUpti_BuffersCallbackRequestFunc> g_request{nullptr};
std::atomic<CUpti_BuffersCallbackCompleteFunc> g_complete{nullptr};

void request_shared(uint8_t** buffer, size_t* size, size_t* max_records, void*) {
  g_request.load()(buffer, size, max_records);
}

void complete_shared(uint8_t* buffer, size_t size, size_t valid, void*) {
  g_complete.load()(nullptr, kStreamIsUnknown, buffer, size, valid);
}

}  // namespace

bool CuptiSubscription::open_shared(CUpti_CallbackFunc callback) noexcept {
  if (functions_->shared.activity_enable == nullptr) return false;
  CUpti_SubscriberParams_13_2 params{};
  params.structSize = sizeof params;
  params.subscriberName = "tidemark";
  params.allowMultipleSubscribers = 1;
  if (functions_->subscribe_v2(&handle_, callback, nullptr,
                               reinterpret_cast<CUpti_SubscriberParams*>(&params)) !=
      CUPTI_SUCCESS) {
    return false;
  }
  // A driver that is too old may refuse only what comes after the subscription.
  uint64_t now = 0;
  if (functions_->shared.get_timestamp(handle_, &now) == CUPTI_SUCCESS) return true;
  functions_->unsubscribe(handle_);
  return false;
}

CUptiResult CuptiSubscription::open(const CuptiFunctions& functions,
                                    CUpti_CallbackFunc callback) noexcept {
  functions_ = &functions;
  if (open_shared(callback)) {
    way_ = Way::kShared;
    return CUPTI_SUCCESS;
  }
  const CUptiResult result = functions.subscribe(&handle_, callback, nullptr);
  way_ = result == CUPTI_SUCCESS ? Way::kAlone : Way::kNone;
  if (way_ == Way::kNone) handle_ = nullptr;
  return result;
}

void CuptiSubscription::close() noexcept {
  if (handle_ == nullptr) return;
  functions_->unsubscribe(handle_);
  handle_ = nullptr;
  way_ = Way::kNone;
}

CUptiResult CuptiSubscription::enable(CUpti_ActivityKind kind) const noexcept {
  return is_shared() ? functions_->shared.activity_enable(handle_, kind, nullptr)
                     : functions_->activity_enable(kind);
}

CUptiResult CuptiSubscription::disable(CUpti_ActivityKind kind) const noexcept {
  return is_shared() ? functions_->shared.activity_disable(handle_, kind, nullptr)
                     : functions_->activity_disable(kind);
}

CUptiResult CuptiSubscription::register_buffers(
    CUpti_BuffersCallbackRequestFunc request,
    CUpti_BuffersCallbackCompleteFunc complete) const noexcept {
  if (!is_shared()) return functions_->activity_register_callbacks(request, complete);
  g_request.store(request);
  g_complete.store(complete);
  return functions_->shared.activity_register_callbacks(handle_, request_shared, complete_shared);
}

CUptiResult CuptiSubscription::next_record(uint8_t* buffer, size_t bytes,
                                           CUpti_Activity** record) const noexcept {
  return is_shared() ? functions_->shared.activity_get_next_record(handle_, buffer, bytes, record)
                     : functions_->activity_get_next_record(buffer, bytes, record);
}

CUptiResult CuptiSubscription::dropped_records(size_t* dropped) const noexcept {
  return is_shared()
             ? functions_->shared.activity_get_num_dropped_records(handle_, nullptr,
                                                                   kStreamIsUnknown, dropped)
             : functions_->activity_get_num_dropped_records(nullptr, kStreamIsUnknown, dropped);
}

CUptiResult CuptiSubscription::set_attribute(CUpti_ActivityAttribute name, size_t* size,
                                             void* value) const noexcept {
  return is_shared() ? functions_->shared.activity_set_attribute(handle_, name, size, value)
                     : functions_->activity_set_attribute(name, size, value);
}

CUptiResult CuptiSubscription::get_attribute(CUpti_ActivityAttribute name, size_t* size,
                                             void* value) const noexcept {
  return is_shared() ? functions_->shared.activity_get_attribute(handle_, name, size, value)
                     : functions_->activity_get_attribute(name, size, value);
}

}  // namespace tidemark::injector
