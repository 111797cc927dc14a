#include "proto/base/hash.h"

#include <gtest/gtest.h>

namespace tidemark {
namespace {

// Flow ids of exported files depend on these values.
TEST(Hash, MixedBitsAreThoseOfSplitmix64) {
  EXPECT_EQ(mix_bits(0), 0U);
  EXPECT_EQ(mix_bits(kGoldenRatio), 0xe220a8397b1dcdafU);  // first number of the seed 0
  EXPECT_EQ(mix_bits(2 * kGoldenRatio), 0x6e789e6aa1b965f4U);
}

TEST(Hash, OrderOfWordsMatters) {
  EXPECT_NE(hash_word(hash_word(0, 1), 2), hash_word(hash_word(0, 2), 1));
}

TEST(Hash, SaltIsTheSameThroughoutAProcess) {
  EXPECT_EQ(hash_salt(), hash_salt());
}

}  // namespace
}  // namespace tidemark
