#include "injector/nvtx/ranges.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "abi/nvtx.h"
#include "injector/marks/record_mark.h"
#include "injector/nccl/operations.h"
#include "injector/process/environment.h"
#include "injector/process/utf8.h"

namespace tidemark::injector {
namespace {

using nvtx::EventAttributes;

// What the handle of a domain or a registered string points to. Never freed, as in NVTX. It may be
// created before a recording begins, so the id of the text is looked up when it is used.
struct HeldText {
  std::atomic<uint32_t> session;
  std::atomic<uint32_t> id;
  size_t size;
  char text[1];
};

HeldText* hold(std::string_view text) {
  auto* const held = static_cast<HeldText*>(std::malloc(sizeof(HeldText) + text.size()));
  if (held == nullptr) return nullptr;
  held->session.store(0);
  held->id.store(0);
  held->size = text.size();
  std::memcpy(held->text, text.data(), text.size());
  return held;
}

uint32_t id_of(HeldText* held) {
  if (held == nullptr) return 0;
  const uint32_t session = capture_session.load(std::memory_order_relaxed);
  if (held->session.load(std::memory_order_acquire) == session) {
    return held->id.load(std::memory_order_relaxed);
  }
  const uint32_t id = recorder().intern_string({held->text, held->size});
  if (id == 0) return 0;  // a recording that is just starting may have it
  held->id.store(id, std::memory_order_relaxed);
  held->session.store(session, std::memory_order_release);
  return id;
}

// Four-byte characters, as in wchar_t on Linux.
std::string_view narrow(const wchar_t* wide, char* out, size_t capacity) {
  size_t size = 0;
  for (; wide != nullptr && *wide != 0; ++wide) {
    const size_t written = put_utf8(static_cast<uint32_t>(*wide), out + size, capacity - size);
    if (written == 0) break;
    size += written;
  }
  return {out, size};
}

constexpr size_t kMaxWide = 512;

uint32_t text_id(const char* text) {
  return text != nullptr ? recorder().intern_string(text) : 0;
}

uint32_t text_id(const wchar_t* text) {
  char buffer[kMaxWide];
  return recorder().intern_string(narrow(text, buffer, sizeof buffer));
}

uint32_t text_id(const EventAttributes* attributes) {
  if (attributes == nullptr || attributes->message == nullptr) return 0;
  switch (attributes->message_type) {
    case nvtx::kMessageAscii:
      return text_id(static_cast<const char*>(attributes->message));
    case nvtx::kMessageUnicode:
      return text_id(static_cast<const wchar_t*>(attributes->message));
    case nvtx::kMessageRegistered:
      return id_of(static_cast<HeldText*>(const_cast<void*>(attributes->message)));
    default:
      return 0;
  }
}

// Open ranges of this thread, so that their ends are recorded with their names. Ranges nested
// deeper end without a name. Small, and initial-exec for the reason given in
// recorder/thread_writer.h.
struct OpenRanges {
  static constexpr uint32_t kMax = 16;
  uint32_t session;
  uint32_t depth;
  uint32_t name[kMax];
  uint32_t domain[kMax];
};
thread_local constinit OpenRanges t_open __attribute__((tls_model("initial-exec"))) = {};

std::atomic<uint64_t> g_last_range{0};

int push(uint32_t name, uint32_t domain) {
  const uint32_t session = capture_session.load(std::memory_order_relaxed);
  if (t_open.session != session) {
    t_open.session = session;
    t_open.depth = 0;
  }
  if (t_open.depth < OpenRanges::kMax) {
    t_open.name[t_open.depth] = name;
    t_open.domain[t_open.depth] = domain;
  }
  record_mark(MarkKind::kNvtx, MarkPhase::kBegin, name, domain, 0);
  return static_cast<int>(t_open.depth++);
}

int pop(uint32_t domain) {
  if (t_open.session != capture_session.load(std::memory_order_relaxed) || t_open.depth == 0) {
    return -1;
  }
  uint32_t at = --t_open.depth;
  uint32_t name = 0;
  if (at < OpenRanges::kMax) {
    // Each domain has its own stack; they rarely interleave.
    while (at > 0 && t_open.domain[at] != domain) --at;
    name = t_open.name[at];
    for (uint32_t i = at; i < t_open.depth; ++i) {
      t_open.name[i] = t_open.name[i + 1];
      t_open.domain[i] = t_open.domain[i + 1];
    }
  }
  record_mark(MarkKind::kNvtx, MarkPhase::kEnd, name, domain, 0);
  return static_cast<int>(t_open.depth);
}

uint64_t start(uint32_t name, uint32_t domain) {
  const uint64_t id = g_last_range.fetch_add(1, std::memory_order_relaxed) + 1;
  record_mark(MarkKind::kNvtx, MarkPhase::kBegin, name, domain, id);
  return id;
}

bool off() {
  return !recorder().on();
}

uint32_t domain_id(void* domain) {
  return id_of(static_cast<HeldText*>(domain));
}

// The functions as NVTX declares them.
template <typename Text>
void mark_with(const Text* text) {
  if (!off()) record_mark(MarkKind::kNvtx, MarkPhase::kInstant, text_id(text), 0, 0);
}
template <typename Text>
uint64_t start_with(const Text* text) {
  return off() ? 0 : start(text_id(text), 0);
}
template <typename Text>
int push_with(const Text* text) {
  return off() ? 0 : push(text_id(text), 0);
}
void range_end(uint64_t id) {
  if (!off()) record_mark(MarkKind::kNvtx, MarkPhase::kEnd, 0, 0, id);
}
int range_pop() {
  return off() ? 0 : pop(0);
}
void domain_mark(void* domain, const EventAttributes* attributes) {
  if (!off())
    record_mark(MarkKind::kNvtx, MarkPhase::kInstant, text_id(attributes), domain_id(domain), 0);
}
uint64_t domain_start(void* domain, const EventAttributes* attributes) {
  return off() ? 0 : start(text_id(attributes), domain_id(domain));
}
void domain_end(void* domain, uint64_t id) {
  if (!off()) record_mark(MarkKind::kNvtx, MarkPhase::kEnd, 0, domain_id(domain), id);
}
// NCCL's calls do not nest: one at a time per thread.
thread_local constinit struct NcclCallUnderWay {
  const HeldText* name;
  int64_t start_ns;
} t_nccl __attribute__((tls_model("initial-exec"))) = {};

bool is_nccl(const void* domain) {
  const auto* const held = static_cast<const HeldText*>(domain);
  return held != nullptr && std::string_view(held->text, held->size) == "NCCL";
}

int domain_push(void* domain, const EventAttributes* attributes) {
  if (off()) return 0;
  if (is_nccl(domain) && attributes != nullptr &&
      attributes->message_type == nvtx::kMessageRegistered) {
    t_nccl = {static_cast<const HeldText*>(attributes->message), now_ns()};
  }
  return push(text_id(attributes), domain_id(domain));
}
int domain_pop(void* domain) {
  if (off()) return 0;
  if (t_nccl.name != nullptr && is_nccl(domain)) {
    record_named_call(t_nccl.name->text, t_nccl.name->size, t_nccl.start_ns, now_ns());
    t_nccl.name = nullptr;
  }
  return pop(domain_id(domain));
}
void* register_string(void*, const char* text) {
  return hold(text != nullptr ? text : "");
}
void* register_wide_string(void*, const wchar_t* text) {
  char buffer[kMaxWide];
  return hold(narrow(text, buffer, sizeof buffer));
}
void* create_domain(const char* name) {
  return hold(name != nullptr ? name : "");
}
void* create_wide_domain(const wchar_t* name) {
  return register_wide_string(nullptr, name);
}

class Slots {
 public:
  Slots(const nvtx::ExportTableCallbacks& callbacks, nvtx::Module module) {
    if (callbacks.get_module_function_table(module, &table_, &size_) != 1) size_ = 0;
  }
  template <typename Function>
  void fill(uint32_t number, Function function) {
    if (number < size_ && table_[number] != nullptr) {
      *table_[number] = reinterpret_cast<nvtx::Function>(function);
    }
  }
  bool exist() const { return size_ != 0; }

 private:
  nvtx::FunctionTable table_ = nullptr;
  unsigned size_ = 0;
};

}  // namespace

bool install_nvtx(NvtxExportTable export_table) noexcept {
  if (export_table == nullptr) return false;
  const auto* const callbacks =
      static_cast<const nvtx::ExportTableCallbacks*>(export_table(nvtx::kEtidCallbacks));
  if (callbacks == nullptr || callbacks->struct_size < sizeof(nvtx::ExportTableCallbacks)) {
    return false;
  }
  Slots core(*callbacks, nvtx::kModuleCore);
  core.fill(nvtx::kMarkEx, mark_with<EventAttributes>);
  core.fill(nvtx::kMarkA, mark_with<char>);
  core.fill(nvtx::kMarkW, mark_with<wchar_t>);
  core.fill(nvtx::kRangeStartEx, start_with<EventAttributes>);
  core.fill(nvtx::kRangeStartA, start_with<char>);
  core.fill(nvtx::kRangeStartW, start_with<wchar_t>);
  core.fill(nvtx::kRangeEnd, range_end);
  core.fill(nvtx::kRangePushEx, push_with<EventAttributes>);
  core.fill(nvtx::kRangePushA, push_with<char>);
  core.fill(nvtx::kRangePushW, push_with<wchar_t>);
  core.fill(nvtx::kRangePop, range_pop);
  Slots core2(*callbacks, nvtx::kModuleCore2);
  core2.fill(nvtx::kDomainMarkEx, domain_mark);
  core2.fill(nvtx::kDomainRangeStartEx, domain_start);
  core2.fill(nvtx::kDomainRangeEnd, domain_end);
  core2.fill(nvtx::kDomainRangePushEx, domain_push);
  core2.fill(nvtx::kDomainRangePop, domain_pop);
  core2.fill(nvtx::kDomainRegisterStringA, register_string);
  core2.fill(nvtx::kDomainRegisterStringW, register_wide_string);
  core2.fill(nvtx::kDomainCreateA, create_domain);
  core2.fill(nvtx::kDomainCreateW, create_wide_domain);
  return core.exist();
}

}  // namespace tidemark::injector

// With TIDEMARK_NVTX=0 no functions are filled in: NVTX then costs nothing.
extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    tidemark::injector::NvtxExportTable export_table) {
  const char* const wanted = tidemark::injector::process_environment("TIDEMARK_NVTX");
  if (wanted != nullptr && std::strcmp(wanted, "0") == 0) return 0;
  return tidemark::injector::install_nvtx(export_table) ? 1 : 0;
}
