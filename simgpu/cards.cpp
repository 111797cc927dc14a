#include "simgpu/cards.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace tidemark::simgpu {
namespace {

constexpr uint64_t kMagic = 0x31647261634d4953;  // "SIMcard1"
constexpr off_t kTakeByte = 0;
constexpr off_t kFirstSlotByte = 1;

struct flock range(short type, off_t byte) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return lock;
}

// Holds the lock on byte 0 of the file while in scope. Without a file there is nothing to lock.
class TakeLock {
 public:
  explicit TakeLock(int fd) : fd_(fd) { change(F_WRLCK); }
  ~TakeLock() { change(F_UNLCK); }
  TakeLock(const TakeLock&) = delete;
  TakeLock& operator=(const TakeLock&) = delete;

 private:
  void change(short type) {
    if (fd_ < 0) return;
    struct flock lock = range(type, kTakeByte);
    while (fcntl(fd_, F_SETLKW, &lock) != 0 && errno == EINTR) {
    }
  }
  int fd_;
};

}  // namespace

Card::Card(const Config& config, int index) : index_(index), capacity_bytes_(config.memory_bytes) {
  if (!config.dir.empty()) map_shared(config.dir + "/card" + std::to_string(index));
  if (state_ == nullptr) state_ = new State{};
}

void Card::map_shared(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) {
    std::fprintf(stderr, "simgpu: cannot open %s: %s; the card is not shared\n", path.c_str(),
                 std::strerror(errno));
    return;
  }
  {
    const TakeLock lock(fd);
    struct stat info {};
    if (fstat(fd, &info) == 0 && info.st_size < static_cast<off_t>(sizeof(State))) {
      if (ftruncate(fd, sizeof(State)) != 0) return;
    }
  }
  void* map = mmap(nullptr, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED) return;
  state_ = static_cast<State*>(map);
  state_->magic = kMagic;
  fd_ = fd;
}

bool Card::held(int slot) const {
  const Slot& s = state_->slots[slot];
  if (s.pid.load(std::memory_order_acquire) == 0) return false;
  if (fd_ < 0 || slot == own_slot_) return true;
  // An open-file-description lock conflicts with the record lock of any process, ours included
  // (another library of this process may hold the slot).
  struct flock lock = range(F_WRLCK, kFirstSlotByte + slot);
  if (fcntl(fd_, F_OFD_GETLK, &lock) != 0) return false;
  return lock.l_type != F_UNLCK;
}

bool Card::claim() {
  if (own_slot_ >= 0) return true;
  for (int slot = 0; slot < kSlots; ++slot) {
    if (held(slot)) continue;
    if (fd_ >= 0) {
      struct flock lock = range(F_WRLCK, kFirstSlotByte + slot);
      if (fcntl(fd_, F_SETLK, &lock) != 0) continue;
    }
    Slot& s = state_->slots[slot];
    s.used_bytes = 0;
    s.contexts = 0;
    s.pid.store(static_cast<uint32_t>(getpid()), std::memory_order_release);
    own_slot_.store(slot);
    return true;
  }
  return false;
}

bool Card::take(uint64_t bytes) {
  const TakeLock lock(fd_);
  if (!claim()) return false;
  const uint64_t used = used_bytes();
  if (bytes > capacity_bytes_ || used > capacity_bytes_ - bytes) return false;
  state_->slots[own_slot_].used_bytes += bytes;
  return true;
}

void Card::give(uint64_t bytes) {
  if (own_slot_ >= 0) state_->slots[own_slot_].used_bytes -= bytes;
}

void Card::set_contexts(uint32_t count) {
  if (own_slot_ >= 0) state_->slots[own_slot_].contexts = count;
}

uint64_t Card::used_bytes() const {
  uint64_t sum = 0;
  for (int slot = 0; slot < kSlots; ++slot) {
    const uint64_t used = state_->slots[slot].used_bytes;
    if (used != 0 && held(slot)) sum += used;
  }
  return sum;
}

std::vector<ProcessUse> Card::processes() const {
  std::vector<ProcessUse> list;
  for (int slot = 0; slot < kSlots; ++slot) {
    const Slot& s = state_->slots[slot];
    if (s.contexts != 0 && held(slot)) list.push_back({s.pid, s.used_bytes});
  }
  return list;
}

}  // namespace tidemark::simgpu
