#include "injector/cupti/loader.h"

#include <dirent.h>
#include <dlfcn.h>
#include <link.h>

#include <cstdio>
#include <cstring>

#include "injector/process/tool_thread.h"

namespace tidemark::injector {
namespace {

constexpr int kMajorVersions[] = {13, 12};

std::string_view file_name_of(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

std::string_view folder_of(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

// Major version of the CUDA runtime that the process has loaded; 0: none.
int runtime_version(std::span<const std::string_view> mapped) {
  for (const std::string_view path : mapped) {
    const std::string_view name = file_name_of(path);
    if (name.starts_with("libcudart.so.12")) return 12;
    if (name.starts_with("libcudart.so.13")) return 13;
  }
  return 0;
}

// Builds candidate paths and passes them on until one is accepted.
class Candidates {
 public:
  Candidates(int preferred_version, CandidateUse use, void* context)
      : preferred_(preferred_version), use_(use), context_(context) {}

  bool taken() const { return taken_; }

  void path(std::string_view whole) {
    if (taken_ || whole.size() >= kMaxLibraryPath) return;
    char buffer[kMaxLibraryPath];
    std::memcpy(buffer, whole.data(), whole.size());
    buffer[whole.size()] = '\0';
    taken_ = use_(buffer, context_);
  }

  // Both versions in this folder (with `below` appended), the runtime's version first.
  void folder(std::string_view folder, const char* below) {
    if (preferred_ != 0) in_folder(folder, below, preferred_);
    for (const int version : kMajorVersions) {
      if (version != preferred_) in_folder(folder, below, version);
    }
  }

  // By name: LD_LIBRARY_PATH and the loader's cache.
  void name() {
    if (preferred_ != 0) by_name(preferred_);
    for (const int version : kMajorVersions) {
      if (version != preferred_) by_name(version);
    }
  }

 private:
  void in_folder(std::string_view folder, const char* below, int version) {
    if (taken_) return;
    char buffer[kMaxLibraryPath];
    const int length =
        std::snprintf(buffer, sizeof buffer, "%.*s%s/libcupti.so.%d",
                      static_cast<int>(folder.size()), folder.data(), below, version);
    if (length > 0 && static_cast<size_t>(length) < sizeof buffer) taken_ = use_(buffer, context_);
  }

  void by_name(int version) {
    char buffer[32];
    std::snprintf(buffer, sizeof buffer, "libcupti.so.%d", version);
    if (!taken_) taken_ = use_(buffer, context_);
  }

  int preferred_;
  CandidateUse use_;
  void* context_;
  bool taken_ = false;
};

// Near a CUDA runtime: toolkits keep CUPTI next to it or under extras, wheels in a sibling package
// (nvidia/cuda_runtime/lib and nvidia/cuda_cupti/lib; from CUDA 13 on everything is in
// nvidia/cu13/lib).
void near_runtime(std::string_view folder, Candidates& out) {
  out.folder(folder, "");
  out.folder(folder, "/../extras/CUPTI/lib64");
  out.folder(folder, "/../../../extras/CUPTI/lib64");
  out.folder(folder, "/../../cuda_cupti/lib");
}

void near_torch(std::string_view folder, Candidates& out) {
  out.folder(folder, "");
  out.folder(folder, "/../../nvidia/cu13/lib");
  out.folder(folder, "/../../nvidia/cuda_cupti/lib");
}

#if defined(__x86_64__)
constexpr const char* kTargetFolder = "/targets/x86_64-linux/lib";
#else
constexpr const char* kTargetFolder = "/targets/sbsa-linux/lib";
#endif

void in_toolkit(std::string_view toolkit, Candidates& out) {
  out.folder(toolkit, "/extras/CUPTI/lib64");
  out.folder(toolkit, kTargetFolder);
  out.folder(toolkit, "/lib64");
}

void in_installed_toolkits(Candidates& out) {
  in_toolkit("/usr/local/cuda", out);
  DIR* folder = opendir("/usr/local");
  if (folder == nullptr) return;
  while (const dirent* entry = readdir(folder)) {
    if (std::strncmp(entry->d_name, "cuda-", 5) != 0) continue;
    char path[sizeof entry->d_name + 16];
    std::snprintf(path, sizeof path, "/usr/local/%s", entry->d_name);
    in_toolkit(path, out);
  }
  closedir(folder);
}

template <typename Function>
bool find_function(void* library, const char* name, Function& out) {
  out = reinterpret_cast<Function>(dlsym(library, name));
  return out != nullptr;
}

// CUDA 13.2 has a preview of them, without cuptiGetTimestamp_v2.
constexpr uint32_t kOldestShared = 130300;

void find_shared_functions(void* library, CuptiFunctions& f) {
  CuptiSharedFunctions s{};
  const bool all =
      f.subscribe_v2 != nullptr &&
      find_function(library, "cuptiGetTimestamp_v2", s.get_timestamp) &&
      find_function(library, "cuptiActivityEnable_v2", s.activity_enable) &&
      find_function(library, "cuptiActivityDisable_v2", s.activity_disable) &&
      find_function(library, "cuptiActivityRegisterCallbacks_v2", s.activity_register_callbacks) &&
      find_function(library, "cuptiActivityGetNextRecord_v2", s.activity_get_next_record) &&
      find_function(library, "cuptiActivityGetNumDroppedRecords_v2",
                    s.activity_get_num_dropped_records) &&
      find_function(library, "cuptiActivitySetAttribute_v2", s.activity_set_attribute) &&
      find_function(library, "cuptiActivityGetAttribute_v2", s.activity_get_attribute);
  if (all && f.version >= kOldestShared) f.shared = s;
}

bool find_functions(void* library, CuptiFunctions& f) {
  find_function(library, "cuptiSubscribe_v2", f.subscribe_v2);
  find_function(library, "cuptiGetResultString", f.get_result_string);
  return find_function(library, "cuptiGetVersion", f.get_version) &&
         find_function(library, "cuptiSubscribe", f.subscribe) &&
         find_function(library, "cuptiUnsubscribe", f.unsubscribe) &&
         find_function(library, "cuptiEnableCallback", f.enable_callback) &&
         find_function(library, "cuptiGetDeviceId", f.get_device_id) &&
         find_function(library, "cuptiGetContextId", f.get_context_id) &&
         find_function(library, "cuptiActivityEnable", f.activity_enable) &&
         find_function(library, "cuptiActivityDisable", f.activity_disable) &&
         find_function(library, "cuptiActivityRegisterCallbacks", f.activity_register_callbacks) &&
         find_function(library, "cuptiActivityGetNextRecord", f.activity_get_next_record) &&
         find_function(library, "cuptiActivityGetNumDroppedRecords",
                       f.activity_get_num_dropped_records) &&
         find_function(library, "cuptiActivityFlushAll", f.activity_flush_all) &&
         find_function(library, "cuptiActivitySetAttribute", f.activity_set_attribute) &&
         find_function(library, "cuptiActivityGetAttribute", f.activity_get_attribute);
}

// The oldest version whose records match abi/cupti.h: CUDA 12.0.
constexpr uint32_t kOldestVersion = 18;

bool try_library(const char* path, void* context) {
  CuptiLibrary& out = *static_cast<CuptiLibrary*>(context);
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return false;
  CuptiFunctions functions{};
  if (!find_functions(library, functions) ||
      functions.get_version(&functions.version) != cupti::CUPTI_SUCCESS ||
      functions.version < kOldestVersion) {
    std::snprintf(out.reason, sizeof out.reason, "%s is too old (CUDA 12.0 or newer is needed)",
                  path);
    dlclose(library);
    return false;
  }
  find_shared_functions(library, functions);
  out.functions = functions;
  out.found = true;
  Dl_info info{};
  const bool located = dladdr(reinterpret_cast<void*>(functions.subscribe), &info) != 0;
  std::snprintf(out.path, sizeof out.path, "%s", located ? info.dli_fname : path);
  return true;
}

// Paths of mapped libraries that show where CUDA is installed; copied, since the loader may free
// them.
struct MappedPaths {
  static constexpr size_t kMax = 16;
  char text[kMax][kMaxLibraryPath];
  std::string_view views[kMax];
  size_t count = 0;
};

int collect_path(dl_phdr_info* info, size_t, void* context) {
  auto& paths = *static_cast<MappedPaths*>(context);
  const std::string_view path = info->dlpi_name != nullptr ? info->dlpi_name : "";
  const std::string_view name = file_name_of(path);
  const bool tells = name.starts_with("libcupti.so") || name.starts_with("libcudart.so") ||
                     name.starts_with("libtorch_cuda.so") || name.starts_with("libtorch.so");
  if (!tells || path.size() >= kMaxLibraryPath || paths.count == MappedPaths::kMax) return 0;
  std::memcpy(paths.text[paths.count], path.data(), path.size());
  paths.views[paths.count] = {paths.text[paths.count], path.size()};
  ++paths.count;
  return 0;
}

}  // namespace

bool for_each_cupti_candidate(std::span<const std::string_view> mapped, CandidateUse use,
                              void* context) noexcept {
  Candidates out(runtime_version(mapped), use, context);
  for (const std::string_view path : mapped) {
    if (file_name_of(path).starts_with("libcupti.so")) out.path(path);
  }
  for (const std::string_view path : mapped) {
    if (file_name_of(path).starts_with("libcudart.so")) near_runtime(folder_of(path), out);
  }
  out.name();
  for (const std::string_view path : mapped) {
    if (file_name_of(path).starts_with("libtorch")) near_torch(folder_of(path), out);
  }
  if (!out.taken()) in_installed_toolkits(out);
  return out.taken();
}

void load_cupti(CuptiLibrary& out) noexcept {
  const ForeignCall foreign;
  static MappedPaths paths;  // 16 KiB: too large for the stack of a host thread
  paths.count = 0;
  dl_iterate_phdr(collect_path, &paths);
  if (!for_each_cupti_candidate({paths.views, paths.count}, try_library, &out) &&
      out.reason[0] == '\0') {
    std::snprintf(out.reason, sizeof out.reason,
                  "libcupti.so.12 or .13 was not found (add its directory to LD_LIBRARY_PATH)");
  }
}

}  // namespace tidemark::injector
