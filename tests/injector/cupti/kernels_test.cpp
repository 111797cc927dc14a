// Who owns the buffers that CUPTI fills.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <vector>

#include "injector/cupti/kernels.h"

namespace tidemark::injector {
namespace {

using namespace cupti;

CUpti_BuffersCallbackRequestFunc g_request = nullptr;
CUpti_BuffersCallbackCompleteFunc g_complete = nullptr;

CUptiResult take_callbacks(CUpti_BuffersCallbackRequestFunc request,
                           CUpti_BuffersCallbackCompleteFunc complete) {
  g_request = request;
  g_complete = complete;
  return CUPTI_SUCCESS;
}

// A CUPTI that only asks for buffers.
CuptiFunctions functions(uint32_t version) {
  CuptiFunctions f{};
  f.version = version;
  f.subscribe = [](CUpti_SubscriberHandle*, CUpti_CallbackFunc, void*) { return CUPTI_SUCCESS; };
  f.activity_enable = [](CUpti_ActivityKind) { return CUPTI_SUCCESS; };
  f.activity_disable = [](CUpti_ActivityKind) { return CUPTI_SUCCESS; };
  f.activity_register_callbacks = take_callbacks;
  f.activity_set_attribute = [](CUpti_ActivityAttribute, size_t*, void*) { return CUPTI_SUCCESS; };
  f.activity_get_attribute = [](CUpti_ActivityAttribute, size_t*, void*) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  };
  return f;
}

CuptiSubscription subscribed(const CuptiFunctions& cupti) {
  CuptiSubscription subscription;
  EXPECT_EQ(subscription.open(cupti, nullptr), CUPTI_SUCCESS);
  return subscription;
}

uint8_t* request(size_t& size) {
  uint8_t* buffer = nullptr;
  size_t records = 0;
  g_request(&buffer, &size, &records);
  return buffer;
}

bool mapped(uint8_t* memory, size_t bytes) {
  std::vector<unsigned char> pages(bytes / 4096 + 1);
  return ::mincore(memory, bytes, pages.data()) == 0;
}

TEST(KernelsTest, ABufferOfAnotherClientIsLeftAlone) {
  const CuptiFunctions cupti = functions(130000);
  const CuptiSubscription subscription = subscribed(cupti);
  ASSERT_TRUE(start_kernels(subscription, Options()));
  constexpr size_t kBytes = 4 << 20;
  void* const foreign =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(foreign, MAP_FAILED);
  g_complete(nullptr, 0, static_cast<uint8_t*>(foreign), kBytes, 64);
  g_complete(nullptr, 0, nullptr, 0, 0);
  EXPECT_TRUE(mapped(static_cast<uint8_t*>(foreign), kBytes));
  ::munmap(foreign, kBytes);
  stop_kernels();
}

TEST(KernelsTest, RecordsOfAnUnknownVersionAreNotAskedFor) {
  CuptiFunctions cupti = functions(140000);
  cupti.activity_register_callbacks = [](auto, auto) {
    ADD_FAILURE();
    return CUPTI_SUCCESS;
  };
  const CuptiSubscription subscription = subscribed(cupti);
  EXPECT_FALSE(start_kernels(subscription, Options()));
  stop_kernels();
}

// CUPTI before 12.9 crashes without a buffer, so it gets one that nobody reads.
TEST(KernelsTest, BuffersBeyondThePoolAreFreedWhenTheyComeBack) {
  const CuptiFunctions cupti = functions(18);
  const CuptiSubscription subscription = subscribed(cupti);
  ASSERT_TRUE(start_kernels(subscription, Options()));
  size_t bytes = 0;
  std::vector<uint8_t*> buffers;
  for (int i = 0; i < 65; ++i) buffers.push_back(request(bytes));
  stop_kernels();
  buffers.push_back(request(bytes));  // CUPTI still asks after the end of the recording
  for (uint8_t* buffer : buffers) ASSERT_NE(buffer, nullptr);
  for (size_t i = 64; i < buffers.size(); ++i) {
    g_complete(nullptr, 0, buffers[i], bytes, 0);
    EXPECT_FALSE(mapped(buffers[i], bytes)) << i;
  }
  for (size_t i = 0; i < 64; ++i) {
    g_complete(nullptr, 0, buffers[i], bytes, 0);
    EXPECT_TRUE(mapped(buffers[i], bytes)) << i;
  }
}

}  // namespace
}  // namespace tidemark::injector
