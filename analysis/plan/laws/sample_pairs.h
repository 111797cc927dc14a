// Matrices with a row and a column for every sample of the batch, which a program's own lines
// compute: similarities of a contrastive loss, distances, the kernel of a Gaussian process; also
// with several numbers for each pair. They grow with the square of the batch.
//
// Without the shapes of tensors, sizes tell: the numbers of a matrix are a square r * r, most
// inputs divide by r (or half of it, where two views of a batch are joined), something has one
// number for each of r samples, no weight has a dimension of r alone, and no layer follows. Beside
// such matrices, what has r times the size of another result that divides by r has a vector for
// each pair, as the differences of all rows have. All of it can be a coincidence, so these laws are
// never sure.
#pragma once

#include <cstdint>
#include <map>

#include "analysis/plan/laws/size_law.h"
#include "analysis/plan/program/program.h"

namespace tidemark {

// The number of samples by the size of what has a row and a column for each of them.
using SamplePairs = std::map<uint64_t, uint64_t>;

// Attention matrices are known already: their laws stay.
SamplePairs find_sample_pairs(const RecordedProgram& program, SizeLaws& laws);

}  // namespace tidemark
