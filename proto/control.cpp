#include "proto/control.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>

namespace tidemark::control {
namespace {

constexpr std::string_view kSuffix = ".sock";
constexpr size_t kReserve = 1;  // the line end

bool plain(unsigned char c) {
  return c > 0x20 && c < 0x7f && c != '%';
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool fits(int printed, size_t size) {
  return printed > 0 && static_cast<size_t>(printed) < size;
}

}  // namespace

bool place_path(Place place, Lookup lookup, uid_t user, char* out, size_t size) noexcept {
  if (place == Place::kTemporary) {
    return fits(std::snprintf(out, size, "/tmp/tidemark-%u", static_cast<unsigned>(user)), size);
  }
  const char* const value =
      lookup(place == Place::kVariable ? "TIDEMARK_CONTROL_DIR" : "XDG_RUNTIME_DIR");
  if (value == nullptr || *value == '\0') return false;
  int length = static_cast<int>(std::strlen(value));
  while (length > 1 && value[length - 1] == '/') --length;
  const char* const suffix = place == Place::kVariable ? "" : "/tidemark";
  return fits(std::snprintf(out, size, "%.*s%s", length, value, suffix), size);
}

int open_directory(const char* path, bool make, uid_t user) noexcept {
  if (make && ::mkdir(path, 0700) != 0 && errno != EEXIST) return -1;
  const int fd = ::open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return -1;
  struct stat info {};
  const bool known = ::fstat(fd, &info) == 0;
  if (known && info.st_uid == user && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0) return fd;
  ::close(fd);
  errno = EPERM;
  return -1;
}

bool socket_name(pid_t pid, char* out, size_t size) noexcept {
  return fits(std::snprintf(out, size, "%d%s", static_cast<int>(pid), kSuffix.data()), size);
}

pid_t pid_of_socket(std::string_view name) noexcept {
  if (name.size() <= kSuffix.size() || !name.ends_with(kSuffix)) return 0;
  name.remove_suffix(kSuffix.size());
  int pid = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
  const bool whole = error == std::errc() && end == name.data() + name.size();
  return whole && pid > 0 && name[0] != '0' ? pid : 0;
}

bool socket_address(int directory_fd, const char* path, const char* name, sockaddr_un& out,
                    socklen_t& size) noexcept {
  out = sockaddr_un{};
  out.sun_family = AF_UNIX;
  size = sizeof out;
  if (fits(std::snprintf(out.sun_path, sizeof out.sun_path, "%s/%s", path, name),
           sizeof out.sun_path)) {
    return true;
  }
  return fits(
      std::snprintf(out.sun_path, sizeof out.sun_path, "/proc/self/fd/%d/%s", directory_fd, name),
      sizeof out.sun_path);
}

bool ask_peer(int socket_fd, Peer& out) noexcept {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(socket_fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return false;
  out = {credentials.pid, credentials.uid};
  return true;
}

bool may_talk(const Peer& peer, uid_t user) noexcept {
  return peer.user == user || peer.user == 0;
}

bool Line::append(std::string_view bytes) noexcept {
  if (bytes.size() > sizeof bytes_ - kReserve - size_) return complete_ = false;
  std::memcpy(bytes_ + size_, bytes.data(), bytes.size());
  size_ += bytes.size();
  return true;
}

bool Line::append_escaped(std::string_view value) noexcept {
  constexpr char kHex[] = "0123456789abcdef";
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    const char escaped[3] = {'%', kHex[byte >> 4], kHex[byte & 15]};
    if (!append(plain(byte) ? std::string_view(&c, 1) : std::string_view(escaped, 3))) return false;
  }
  return true;
}

Line& Line::add(std::string_view key, std::string_view value) noexcept {
  const size_t before = size_;
  if (!append(" ") || !append(key) || !append("=") || !append_escaped(value)) size_ = before;
  return *this;
}

Line& Line::add(std::string_view key, uint64_t value) noexcept {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  return add(key, std::string_view(digits, static_cast<size_t>(end - digits)));
}

Line& Line::text(std::string_view words) noexcept {
  const size_t room = sizeof bytes_ - kReserve - size_;
  if (room == 0) return *this;
  append(" ");
  for (const char c : words.substr(0, room - 1)) {
    const char shown = c == '\n' || c == '\r' || c == '\0' ? ' ' : c;
    append({&shown, 1});
  }
  return *this;
}

std::string_view Line::finish() noexcept {
  bytes_[size_] = '\n';
  return {bytes_, size_ + 1};
}

std::string_view first_word(std::string_view line) noexcept {
  return line.substr(0, line.find(' '));
}

std::string_view rest_of(std::string_view line) noexcept {
  const size_t space = line.find(' ');
  return space == std::string_view::npos ? std::string_view() : line.substr(space + 1);
}

size_t unescape(std::string_view value, char* out, size_t size) noexcept {
  size_t length = 0;
  for (size_t i = 0; i < value.size(); ++i) {
    if (length + 1 >= size) return SIZE_MAX;
    char c = value[i];
    if (c == '%' && i + 2 < value.size()) {
      const int high = hex_digit(value[i + 1]);
      const int low = hex_digit(value[i + 2]);
      if (high >= 0 && low >= 0) {
        c = static_cast<char>(high * 16 + low);
        i += 2;
      }
    }
    out[length++] = c;
  }
  if (size == 0) return SIZE_MAX;
  out[length] = '\0';
  return length;
}

bool find_value(std::string_view line, std::string_view key, char* out, size_t size) noexcept {
  bool found = false;
  each_pair(line, [&](std::string_view name, std::string_view value) {
    if (!found && name == key) found = unescape(value, out, size) != SIZE_MAX;
  });
  return found;
}

bool find_number(std::string_view line, std::string_view key, uint64_t& out) noexcept {
  char text[24];
  if (!find_value(line, key, text, sizeof text)) return false;
  const char* const end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, out);
  return error == std::errc() && stop == end && end != text;
}

}  // namespace tidemark::control
