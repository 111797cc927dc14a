// Another injection library: prints that it was started, and takes the CUPTI subscription if asked
// to.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include "abi/cupti.h"

extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  std::puts("rival started");
  std::fflush(stdout);
  if (std::getenv("RIVAL_SUBSCRIBES") == nullptr) return 1;
  using namespace tidemark::cupti;
  void* library = dlopen("libcupti.so.13", RTLD_NOW);
  if (library == nullptr) return 0;
  const auto subscribe = reinterpret_cast<cuptiSubscribe_fn>(dlsym(library, "cuptiSubscribe"));
  CUpti_SubscriberHandle handle = nullptr;
  subscribe(
      &handle, [](void*, CUpti_CallbackDomain, uint32_t, const void*) {}, nullptr);
  return 1;
}
