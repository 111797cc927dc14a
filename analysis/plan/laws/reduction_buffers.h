// Buffers of PyTorch's reductions over the batch, such as the gradient of a bias.
//
// Where one block of threads per output would leave parts of the card idle, several share an output
// and leave what they found in a buffer, which the last one adds up (aten/src/ATen/native/cuda/
// Reduce.cuh, PyTorch 2.x):
//
//   allocation              bytes
//   result                  4 or 2 for each of n outputs
//   buffer                  4 * n * 128 * blocks per output
//   semaphores              4 * ceil(n / 128)
//
// There are as many blocks per output as make 16 rows each, but no more than fill the card, and at
// least as many as make 256 rows each. So the buffer grows with the batch only up to a size that
// the card decides, it does not depend on the precision, and it can be larger than all that it adds
// up.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "analysis/plan/program/program.h"

namespace tidemark {

struct ReductionBuffer {
  uint32_t row = 0;
  uint64_t scaled = 0;  // bytes with 16 rows per block, however many there are
  uint64_t most = 0;    // bytes that fill the card
};

// None if the card is not known.
std::vector<ReductionBuffer> reduction_buffers(const RecordedProgram& program);

// Blocks of 128 threads that run at the same time on a card; 0: not known.
uint64_t resident_blocks(std::string_view card);

}  // namespace tidemark
