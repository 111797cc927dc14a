// A few blocks of one operation that take much of the peak, what to do about them, and its words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "analysis/findings/evidence.h"
#include "analysis/findings/one_shape.h"

namespace tidemark {

struct Operation {
  uint64_t largest_bytes = 0;  // of its blocks
  uint64_t usual_bytes = 0;    // of most of them: the largest may be a lone workspace
  uint64_t bytes = 0;          // at the peak
  uint64_t blocks = 0;
  uint64_t others_bytes = 0;  // of everything else but weights, gradients and states
  uint64_t next_bytes = 0;    // of the largest other block computed around the peak
  uint64_t next_live = 0;     // of the largest other block of several layers at the peak
  size_t other_stacks = 0;    // of such blocks
  size_t near = 0;            // blocks of its shape computed around the peak
  size_t near_others = 0;     // and of other shapes
  uint64_t all_bytes = 0;     // everything at that instant
  bool failed = false;        // one of its blocks is the request that failed
  uint32_t stack = 0;
  std::vector<uint32_t> stacks;
  size_t named = 0;                    // stacks outside the backward pass
  bool converted = false;              // one result, and the same in another precision
  bool varies = false;                 // its blocks are of about one size
  std::vector<size_t> rows;            // at the peak
  std::unordered_set<uint64_t> sizes;  // of its lines' results, wherever they ran

  bool has_size(uint64_t block_bytes) const {
    return of_one_shape(block_bytes, largest_bytes) ||
           (block_bytes > next_bytes && sizes.contains(block_bytes));
  }
};

enum class Remedy : uint8_t {
  kSplit,
  kSplitInLayer,
  kLoss,
  kAttention,
  kOneHot,
  kAutotuning,
  kShareMask,
};

// What the frames of an operation call themselves, in PyTorch's words. A softmax is of attention
// inside a layer of the program; outside, and in a loss, it is one over classes. A result that the
// model itself converts, outside its layers, is its output.
Remedy remedy_for(const Dictionary& names, const Operation& o);

// `trains`: what is computed in parts must not be kept for the backward pass.
std::string text_of(Remedy remedy, bool trains, bool of_output);
std::string subject_of(const Operation& o, Remedy remedy);
// "60.9 % of the peak".
std::string share_text(const Operation& o);
// "4 blocks of up to 3.0 GiB".
std::string blocks_text(const Operation& o);
// The lines of the program whose results the saving leaves out, if there are a few of them.
// `stacks`: of these.
std::string together_text(const DeviceEvidence& d, const std::unordered_set<uint32_t>& stacks);
// What the sizes of its blocks tell of their shapes: numbers of 32 bits, as many as the square of
// those in another block, of a column beside a row, or a row and a column for every sample.
std::string shape_text(const DeviceEvidence& d, const Operation& o);

}  // namespace tidemark
