// Mixing functions for hash tables and hashed numbers. Results of mix_bits() reach files
// (the flow ids of the Perfetto export, the collectives that the alignment of ranks samples), so it
// must not change.
#pragma once

#include <cstdint>
#include <random>

namespace tidemark {

// 2^64 divided by the golden ratio: the usual odd constant for multiplicative hashing.
inline constexpr uint64_t kGoldenRatio = 0x9e3779b97f4a7c15;

// The finaliser of splitmix64. A bijection in which every bit of `x` affects every bit of the
// result.
constexpr uint64_t mix_bits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Adds a word to a running hash with a single multiplication. Weaker than mix_bits(), and enough
// for the index into a table.
constexpr uint64_t hash_word(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * kGoldenRatio;
  return hash ^ (hash >> 32);
}

// A start value for hashes of what a file contains: differs from process to process, so that nobody
// can craft a file whose entries all collide.
inline uint64_t hash_salt() {
  static const uint64_t salt = (uint64_t{std::random_device()()} << 32) | std::random_device()();
  return salt;
}

}  // namespace tidemark
