#include "collector/attach/inject/process_maps.h"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>

#include "collector/attach/inject/proc_text.h"

namespace tidemark::inject {

namespace {

bool take_hex(std::string_view& rest, uint64_t& out) {
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), out, 16);
  if (error != std::errc()) return false;
  rest.remove_prefix(static_cast<size_t>(end - rest.data()));
  return true;
}

// begin-end perms offset device inode   path
bool parse_line(std::string_view line, MappedFile& file, uint64_t& offset) {
  if (!take_hex(line, file.begin) || !line.starts_with('-')) return false;
  line.remove_prefix(1);
  if (!take_hex(line, file.end) || line.size() < 6) return false;
  file.executable = line[3] == 'x';
  line.remove_prefix(6);
  if (!take_hex(line, offset)) return false;
  const size_t path = line.find_first_of("/[");
  if (path != std::string_view::npos) file.path = line.substr(path);
  return true;
}

}  // namespace

std::string_view MappedFile::name() const {
  const std::string_view whole = path;
  const size_t slash = whole.rfind('/');
  return slash == std::string_view::npos ? whole : whole.substr(slash + 1);
}

std::vector<MappedFile> parse_maps(std::string_view text) {
  std::vector<MappedFile> files;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    MappedFile file;
    uint64_t offset = 0;
    const bool good = parse_line(text.substr(0, end), file, offset) && !file.path.empty();
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (!good) continue;
    if (offset != 0 && !files.empty() && files.back().path == file.path) {
      files.back().end = file.end;
      files.back().executable |= file.executable;
      continue;
    }
    file.at_start = offset == 0;
    files.push_back(std::move(file));
  }
  return files;
}

Result<std::vector<MappedFile>> read_maps(pid_t pid) {
  errno = 0;  // kernel threads have an empty file
  const std::string text = proc_text("/proc/" + std::to_string(pid) + "/maps");
  if (text.empty() && errno != 0) return Error{std::strerror(errno)};
  return parse_maps(text);
}

MappedRange mapping_at(pid_t pid, uint64_t address) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/maps");
  std::string line;
  while (std::getline(in, line)) {
    MappedFile file;
    uint64_t offset = 0;
    if (!parse_line(line, file, offset) || address < file.begin || address >= file.end) continue;
    return {file.begin, file.end, line[line.find(' ') + 2] == 'w', file.executable};
  }
  return {};
}

CLibrary find_c_library(const std::vector<MappedFile>& files) {
  CLibrary found = CLibrary::kNone;
  for (const MappedFile& file : files) {
    const std::string_view name = file.name();
    // musl's loader is its C library.
    if (name.starts_with("ld-musl-") || name.starts_with("libc.musl-")) return CLibrary::kMusl;
    if (file.path.find("musl") != std::string::npos && name == "libc.so") return CLibrary::kMusl;
    if (name.starts_with("libc.so.6") || name.starts_with("libc-2.")) found = CLibrary::kGlibc;
  }
  return found;
}

bool has_cuda_driver(const std::vector<MappedFile>& files) {
  for (const MappedFile& file : files) {
    if (file.name().starts_with("libcuda.so")) return true;
  }
  return false;
}

}  // namespace tidemark::inject
