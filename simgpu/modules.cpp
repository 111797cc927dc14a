// Modules and libraries: code that takes memory of the card but is not an allocation.
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>

#include "simgpu/call.h"
#include "simgpu/work.h"

namespace tidemark::simgpu {
namespace {

// Code is taken from the card in pieces of this size.
constexpr uint64_t kCodeGranularity = 64ULL << 10;

struct Image {
  std::string text;    // the PTX text, or empty
  uint64_t bytes = 0;  // as CUPTI reports it: size of the binary, or of the text
};

template <typename T>
T read_at(const void* image, size_t offset) {
  T value;
  std::memcpy(&value, static_cast<const char*>(image) + offset, sizeof(value));
  return value;
}

// An image comes without its size: ELF and fat binaries contain theirs, PTX is a C string.
std::optional<Image> examine(const void* image) {
  if (image == nullptr) return std::nullopt;
  const auto magic = read_at<uint32_t>(image, 0);
  constexpr uint32_t kElf = 0x464c457f;
  constexpr uint32_t kFatBinary = 0xba55ed50;
  constexpr uint32_t kFatBinaryWrapper = 0x466243b1;
  if (magic == kElf) {
    // A cubin ends with its section table: e_shoff + e_shnum * e_shentsize.
    const uint64_t end = read_at<uint64_t>(image, 0x28) +
                         uint64_t{read_at<uint16_t>(image, 0x3c)} * read_at<uint16_t>(image, 0x3a);
    return Image{{}, end};
  }
  if (magic == kFatBinary) {
    return Image{{}, read_at<uint16_t>(image, 6) + read_at<uint64_t>(image, 8)};
  }
  if (magic == kFatBinaryWrapper) return examine(read_at<const void*>(image, 8));
  std::string text(static_cast<const char*>(image));
  if (text.find(".version") == std::string::npos) return std::nullopt;
  const uint64_t bytes = text.size() + 1;
  return Image{std::move(text), bytes};
}

std::optional<std::string> read_file(const char* path) {
  std::FILE* file = path == nullptr ? nullptr : std::fopen(path, "rb");
  if (file == nullptr) return std::nullopt;
  std::string content;
  char piece[4096];
  for (size_t n = 0; (n = std::fread(piece, 1, sizeof(piece), file)) > 0;) content.append(piece, n);
  std::fclose(file);
  return content;
}

// `context` is nullptr for a library.
CUresult load(Driver& driver, Context& context, bool library, const void* data, Module** out) {
  std::optional<Image> image = examine(data);
  if (!image) return CUDA_ERROR_INVALID_IMAGE;
  const uint64_t charged = round_up(image->bytes, kCodeGranularity);
  if (!driver.take(driver.device_of(context), charged)) return CUDA_ERROR_OUT_OF_MEMORY;
  Module* module =
      driver.modules.add({driver.next_id(), library ? nullptr : &context, charged, context.device,
                          !image->text.empty(), std::move(image->text)});
  ResourceEvent event{};
  event.id = cupti::CUPTI_CBID_RESOURCE_MODULE_LOADED;
  event.context = reinterpret_cast<CUcontext>(&context);
  event.module = {module->id, image->bytes, static_cast<const char*>(data)};
  post(event);
  *out = module;
  return CUDA_SUCCESS;
}

template <typename Handle>
CUresult load_as(Driver& driver, Context& context, bool library, const void* data, Handle* out) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Module* module = nullptr;
  const CUresult result = load(driver, context, library, data, &module);
  if (result == CUDA_SUCCESS) *out = reinterpret_cast<Handle>(module);
  return result;
}

// Keeps the bytes of the file alive until the tool got the event, which points to them.
template <typename Handle>
CUresult load_file(Driver& driver, Context& context, bool library, const char* path, Handle* out) {
  static std::vector<std::unique_ptr<std::string>>& files =
      *new std::vector<std::unique_ptr<std::string>>;
  std::optional<std::string> content = read_file(path);
  if (!content) return CUDA_ERROR_FILE_NOT_FOUND;
  files.push_back(std::make_unique<std::string>(std::move(*content)));
  return load_as(driver, context, library, files.back()->c_str(), out);
}

CUresult unload(Driver& driver, const void* handle) {
  ResourceEvent event{};
  {
    const std::lock_guard lock(driver.mutex);
    const Module* module = driver.modules.find(handle);
    if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    event.context = reinterpret_cast<CUcontext>(module->context);
    event.module.moduleId = module->id;
  }
  event.id = cupti::CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING;
  tell(event);
  const std::lock_guard lock(driver.mutex);
  Module* module = driver.modules.find(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  driver.functions.erase_if([&](const Function& f) { return f.module == module; });
  driver.device(module->device)->card.give(module->charged_bytes);
  driver.modules.erase(module);
  return CUDA_SUCCESS;
}

// PTX lists its entry points; for a binary every name is accepted.
bool has_entry(const Module& module, std::string_view name) {
  if (!module.text) return true;
  const std::string_view text = module.image;
  for (size_t at = text.find(".entry"); at != std::string_view::npos;
       at = text.find(".entry", at + 1)) {
    const size_t begin = text.find_first_not_of(" \t\r\n", at + 6);
    if (begin == std::string_view::npos) return false;
    const std::string_view rest = text.substr(begin);
    if (rest.substr(0, rest.find_first_of(" \t\r\n({;")) == name) return true;
  }
  return false;
}

template <typename Handle>
CUresult get_function(Driver& driver, const void* handle, const char* name, Handle* out) {
  Module* module = driver.modules.find(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (name == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!has_entry(*module, name)) return CUDA_ERROR_NOT_FOUND;
  const char* interned = driver.intern(name);
  Function* found = nullptr;
  driver.functions.each([&](Function& f) {
    if (f.module == module && f.name == interned) found = &f;
  });
  if (found == nullptr) found = driver.functions.add({module, interned});
  *out = reinterpret_cast<Handle>(found);
  return CUDA_SUCCESS;
}

}  // namespace

const Function* find_function(Driver& driver, const void* handle) {
  return driver.functions.find(handle);
}

SIMGPU_EXPORT CUresult cuModuleLoad(CUmodule* module, const char* fname) {
  return SIMGPU_CALL(cuModuleLoad, module, fname)
      .run_in_context([&](Driver& driver, Context& context) {
        return load_file(driver, context, false, fname, module);
      });
}

SIMGPU_EXPORT CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return SIMGPU_CALL(cuModuleLoadData, module, image)
      .run_in_context([&](Driver& driver, Context& context) {
        return load_as(driver, context, false, image, module);
      });
}

SIMGPU_EXPORT CUresult cuModuleLoadDataEx(CUmodule* module, const void* image,
                                          unsigned int numOptions, CUjit_option* options,
                                          void** optionValues) {
  return SIMGPU_CALL(cuModuleLoadDataEx, module, image, numOptions, options, optionValues)
      .run_in_context([&](Driver& driver, Context& context) {
        return load_as(driver, context, false, image, module);
      });
}

SIMGPU_EXPORT CUresult cuModuleLoadFatBinary(CUmodule* module, const void* fatCubin) {
  return SIMGPU_CALL(cuModuleLoadFatBinary, module, fatCubin)
      .run_in_context([&](Driver& driver, Context& context) {
        return load_as(driver, context, false, fatCubin, module);
      });
}

SIMGPU_EXPORT CUresult cuModuleUnload(CUmodule hmod) {
  return SIMGPU_CALL(cuModuleUnload, hmod).run_unlocked([&](Driver& driver) {
    return unload(driver, hmod);
  });
}

SIMGPU_EXPORT CUresult cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) {
  return SIMGPU_CALL(cuModuleGetFunction, hfunc, hmod, name).run([&](Driver& driver) {
    return get_function(driver, hmod, name, hfunc);
  });
}

SIMGPU_EXPORT CUresult cuLibraryLoadData(CUlibrary* library, const void* code,
                                         CUjit_option* jitOptions, void** jitOptionsValues,
                                         unsigned int numJitOptions,
                                         CUlibraryOption* libraryOptions,
                                         void** libraryOptionValues,
                                         unsigned int numLibraryOptions) {
  return SIMGPU_CALL(cuLibraryLoadData, library, code, jitOptions, jitOptionsValues, numJitOptions,
                     libraryOptions, libraryOptionValues, numLibraryOptions)
      .run_in_context([&](Driver& driver, Context& context) {
        return load_as(driver, context, true, code, library);
      });
}

SIMGPU_EXPORT CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* fileName,
                                             CUjit_option* jitOptions, void** jitOptionsValues,
                                             unsigned int numJitOptions,
                                             CUlibraryOption* libraryOptions,
                                             void** libraryOptionValues,
                                             unsigned int numLibraryOptions) {
  return SIMGPU_CALL(cuLibraryLoadFromFile, library, fileName, jitOptions, jitOptionsValues,
                     numJitOptions, libraryOptions, libraryOptionValues, numLibraryOptions)
      .run_in_context([&](Driver& driver, Context& context) {
        return load_file(driver, context, true, fileName, library);
      });
}

SIMGPU_EXPORT CUresult cuLibraryUnload(CUlibrary library) {
  return SIMGPU_CALL(cuLibraryUnload, library).run_unlocked([&](Driver& driver) {
    return unload(driver, library);
  });
}

SIMGPU_EXPORT CUresult cuLibraryGetKernel(CUkernel* pKernel, CUlibrary library, const char* name) {
  return SIMGPU_CALL(cuLibraryGetKernel, pKernel, library, name).run([&](Driver& driver) {
    return get_function(driver, library, name, pKernel);
  });
}

// A kernel handle is its function handle: both can be launched.
SIMGPU_EXPORT CUresult cuKernelGetFunction(CUfunction* pFunc, CUkernel kernel) {
  return SIMGPU_CALL(cuKernelGetFunction, pFunc, kernel).run([&](Driver& driver) {
    if (find_function(driver, kernel) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (pFunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pFunc = reinterpret_cast<CUfunction>(kernel);
    return CUDA_SUCCESS;
  });
}

}  // namespace tidemark::simgpu
