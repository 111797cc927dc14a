#include "simgpu/shareable.h"

#include <sys/mman.h>
#include <unistd.h>

namespace tidemark::simgpu {
namespace {

constexpr uint64_t kMagic = 0x316572616853734d;

struct File {
  uint64_t magic;
  Shareable content;
};

}  // namespace

int export_shareable(const Shareable& content) {
  const int fd = memfd_create("simgpu-shareable", MFD_CLOEXEC);
  if (fd < 0) return -1;
  const File file{kMagic, content};
  if (pwrite(fd, &file, sizeof(file), 0) != static_cast<ssize_t>(sizeof(file))) {
    close(fd);
    return -1;
  }
  return fd;
}

std::optional<Shareable> import_shareable(int fd) {
  File file{};
  if (pread(fd, &file, sizeof(file), 0) != static_cast<ssize_t>(sizeof(file))) return std::nullopt;
  if (file.magic != kMagic) return std::nullopt;
  return file.content;
}

Device* device_of_card(Driver& driver, int card) {
  for (auto& device : driver.devices) {
    if (device->card.index() == card) return device.get();
  }
  return nullptr;
}

}  // namespace tidemark::simgpu
