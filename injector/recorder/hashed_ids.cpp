#include "injector/recorder/hashed_ids.h"

#include <cstring>

namespace tidemark::injector {

HashKey hash_bytes(const void* data, size_t size) noexcept {
  const auto* p = static_cast<const uint8_t*>(data);
  Hasher hasher(size);
  uint64_t words[2];
  size_t left = size;
  for (; left >= sizeof words; left -= sizeof words, p += sizeof words) {
    std::memcpy(words, p, sizeof words);
    hasher.take(words[0], words[1]);
  }
  if (left != 0) {
    words[0] = words[1] = 0;
    std::memcpy(words, p, left);
    hasher.take(words[0], words[1]);
  }
  return hasher.finish();
}

}  // namespace tidemark::injector
