#include "bridge/torch_place.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace tidemark::bridge {
namespace {

bool is_file(const char* path) {
  struct stat info {};
  return ::stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

// "directory/part", or false when it does not fit.
template <size_t N>
bool join(char (&out)[N], const char* directory, const char* part) {
  const int length = std::snprintf(out, N, "%s/%s", directory, part);
  return length > 0 && static_cast<size_t>(length) < N;
}

size_t read_text(const char* path, char* buffer, size_t capacity) {
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t size = ::read(file, buffer, capacity - 1);
  ::close(file);
  buffer[size > 0 ? size : 0] = '\0';
  return size > 0 ? static_cast<size_t>(size) : 0;
}

// __version__ = '2.11.0+cu130'
void read_version(const char* text, TorchPlace& place) {
  const char* at = std::strstr(text, "__version__ =");
  if (at == nullptr) return;
  at = std::strpbrk(at, "'\"");
  if (at == nullptr) return;
  const char* const end = std::strchr(at + 1, *at);
  if (end == nullptr || static_cast<size_t>(end - at) > sizeof place.version) return;
  std::memcpy(place.version, at + 1, static_cast<size_t>(end - at - 1));
  // The version becomes part of a file name.
  for (char& c : place.version) {
    if (c == '/' || c == ' ') c = '_';
  }
}

// Wheels before 2.6 were built with the old std::string; mixing the two does not link.
bool uses_cxx11_abi(const char* libc10) {
  const int file = ::open(libc10, O_RDONLY | O_CLOEXEC);
  if (file < 0) return true;
  struct stat info {};
  bool old_string = false;
  if (::fstat(file, &info) == 0 && info.st_size > 0) {
    const auto size = static_cast<size_t>(info.st_size);
    void* const content = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
    if (content != MAP_FAILED) {
      static constexpr char kOld[] = "torchCheckFailEPKcS2_jRKSs";
      old_string = ::memmem(content, size, kOld, sizeof kOld - 1) != nullptr;
      ::munmap(content, size);
    }
  }
  ::close(file);
  return !old_string;
}

// Wheels of CUDA 13 split the toolkit headers: those of the runtime need headers of another
// package.
bool has_runtime_headers(const char* folder) {
  char header[PATH_MAX];
  for (const char* name : {"cuda_runtime_api.h", "crt/host_config.h"}) {
    if (!join(header, folder, name) || !is_file(header)) return false;
  }
  return true;
}

// The headers installed with torch's own CUDA are the right ones; a toolkit is the next best.
bool find_cuda_in_packages(const char* packages, char (&out)[PATH_MAX]) {
  char nvidia[PATH_MAX];
  if (join(out, packages, "nvidia/cuda_runtime/include") && has_runtime_headers(out)) return true;
  if (!join(nvidia, packages, "nvidia")) return false;
  DIR* const folder = ::opendir(nvidia);
  if (folder == nullptr) return false;
  bool found = false;
  while (const dirent* entry = found ? nullptr : ::readdir(folder)) {
    if (std::strncmp(entry->d_name, "cu", 2) != 0) continue;
    char part[300];
    std::snprintf(part, sizeof part, "%s/include", entry->d_name);
    found = join(out, nvidia, part) && has_runtime_headers(out);
  }
  ::closedir(folder);
  return found;
}

bool find_cuda_include(const Environment& environment, const TorchPlace& place,
                       char (&out)[PATH_MAX]) {
  char packages[PATH_MAX];
  if (join(packages, place.directory, "..") && find_cuda_in_packages(packages, out)) return true;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    const char* const home = environment.find(variable);
    if (home != nullptr && join(out, home, "include") && has_runtime_headers(out)) return true;
  }
  for (const char* folder : {"/usr/local/cuda/include", "/usr/include"}) {
    std::snprintf(out, sizeof out, "%s", folder);
    if (has_runtime_headers(out)) return true;
  }
  if (join(out, packages, "triton/backends/nvidia/include") && has_runtime_headers(out))
    return true;
  out[0] = '\0';
  return false;
}

bool cut_last(char* path) {
  char* const slash = std::strrchr(path, '/');
  if (slash != nullptr) *slash = '\0';
  return slash != nullptr;
}

// The library for C++ has no version.py, but a build-version.
bool is_torch(const char* folder) {
  char path[PATH_MAX];
  for (const char* name : {"version.py", "build-version"}) {
    if (join(path, folder, name) && is_file(path)) return true;
  }
  return false;
}

// Whether torch/lib has a link to the library.
bool has_link(const char* folder, const char* library) {
  const char* const name = std::strrchr(library, '/') + 1;
  const char* const ending = std::strstr(name, ".so");
  if (ending == nullptr) return false;
  char link[PATH_MAX];
  const int length = std::snprintf(link, sizeof link, "%s/lib/%.*s.so", folder,
                                   static_cast<int>(ending - name), name);
  struct stat info {};
  struct stat own {};
  return length > 0 && static_cast<size_t>(length) < sizeof link && ::stat(link, &info) == 0 &&
         ::stat(library, &own) == 0 && info.st_dev == own.st_dev && info.st_ino == own.st_ino;
}

// Python's packages in `parent`: python3/dist-packages, python3.12/site-packages.
bool find_package_in(const char* parent, const char* library, char (&out)[PATH_MAX]) {
  DIR* const folder = ::opendir(parent);
  if (folder == nullptr) return false;
  bool found = false;
  while (const dirent* entry = found ? nullptr : ::readdir(folder)) {
    if (std::strncmp(entry->d_name, "python3", 7) != 0) continue;
    for (const char* packages : {"dist-packages", "site-packages"}) {
      const int length =
          std::snprintf(out, sizeof out, "%s/%s/%s/torch", parent, entry->d_name, packages);
      found = length > 0 && static_cast<size_t>(length) < sizeof out && has_link(out, library);
      if (found) break;
    }
  }
  ::closedir(folder);
  return found;
}

// Distributions have all libraries in one folder, and links in torch/lib. Debian's are in
// /usr/lib/x86_64-linux-gnu, for /usr/lib/python3/dist-packages/torch; elsewhere Python's folder
// may be in that of the libraries.
bool find_package(const char* library, char (&out)[PATH_MAX]) {
  char parent[PATH_MAX];
  std::snprintf(parent, sizeof parent, "%s", library);
  return cut_last(parent) && (find_package_in(parent, library, out) ||
                              (cut_last(parent) && find_package_in(parent, library, out)));
}

}  // namespace

uint64_t mix_bytes(uint64_t hash, const void* data, unsigned long size) noexcept {
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (unsigned long i = 0; i < size; ++i) hash = (hash ^ bytes[i]) * 0x100000001b3;
  return hash;
}

bool find_torch_folder(const char* library, char (&folder)[PATH_MAX]) noexcept {
  std::snprintf(folder, sizeof folder, "%s", library);
  if (!cut_last(folder) || !cut_last(folder)) return false;  // …/torch/lib/libc10_cuda.so
  return is_torch(folder) || find_package(library, folder);
}

bool find_torch(const char* libc10_cuda, TorchPlace& place, char* reason,
                unsigned long reason_size) noexcept {
  const auto fail = [&](const char* text) {
    std::snprintf(reason, reason_size, "%s", text);
    return false;
  };
  char library[PATH_MAX];
  if (::realpath(libc10_cuda, library) == nullptr)
    return fail("the path of libc10_cuda.so cannot be resolved");
  if (!find_torch_folder(library, place.directory))
    return fail("libc10_cuda.so is not in a PyTorch installation");
  char path[PATH_MAX];
  if (!join(path, place.directory, "include/c10/cuda/CUDACachingAllocator.h") || !is_file(path)) {
    return fail("this PyTorch has no C++ headers");
  }
  char text[4096];
  if (!join(path, place.directory, "version.py") || read_text(path, text, sizeof text) == 0) {
    return fail("this PyTorch has no version.py");
  }
  read_version(text, place);
  struct stat info {};
  ::stat(library, &info);
  const int64_t facts[] = {static_cast<int64_t>(info.st_size), static_cast<int64_t>(info.st_mtime)};
  place.identity = mix_bytes(kHashBegin, text, std::strlen(text));
  place.identity = mix_bytes(place.identity, facts, sizeof facts);
  place.identity = mix_bytes(place.identity, place.directory, std::strlen(place.directory));
  return true;
}

void find_compile_facts(const Environment& environment, const TorchPlace& place,
                        CompileFacts& facts) noexcept {
  char path[PATH_MAX];
  if (join(path, place.directory, "lib/libc10.so")) facts.cxx11_abi = uses_cxx11_abi(path);
  find_cuda_include(environment, place, facts.cuda_include);
}

}  // namespace tidemark::bridge
