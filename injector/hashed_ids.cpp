#include "injector/hashed_ids.h"

#include <cstring>

namespace tidemark::injector {

namespace {

__extension__ using Wide = unsigned __int128;

// Multiply and fold, the mixing step of wyhash.
uint64_t fold(uint64_t a, uint64_t b) {
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

constexpr uint64_t kSecret[] = {0xa0761d6478bd642f, 0xe7037ed1a0b428db, 0x8ebc6af09c88c6e3,
                                0x589965cc75374cc3};

}  // namespace

// Two lanes that see the same words in different company, so that no input blinds both.
HashKey hash_bytes(const void* data, size_t size) noexcept {
  const auto* p = static_cast<const uint8_t*>(data);
  HashKey h{kSecret[0] ^ size, kSecret[1] + size};
  const auto take = [&h](const uint64_t(&w)[2]) {
    h.a = fold(w[0] ^ h.a ^ kSecret[2], w[1] ^ kSecret[1]) ^ w[1];
    h.b = fold(w[1] ^ h.b ^ kSecret[3], w[0] ^ kSecret[0]) + w[0];
  };
  uint64_t words[2];
  size_t left = size;
  for (; left >= sizeof words; left -= sizeof words, p += sizeof words) {
    std::memcpy(words, p, sizeof words);
    take(words);
  }
  if (left != 0) {
    words[0] = words[1] = 0;
    std::memcpy(words, p, left);
    take(words);
  }
  return {fold(h.a ^ kSecret[0], h.b ^ kSecret[2]) ^ h.a,
          fold(h.b ^ kSecret[1], h.a ^ kSecret[3]) ^ h.b};
}

}  // namespace tidemark::injector
