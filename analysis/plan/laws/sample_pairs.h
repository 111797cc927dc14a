// Matrices with a row and a column for every sample of the batch, which a program's own lines
// compute: similarities of a contrastive loss, distances, the kernel of a Gaussian process; also
// with several numbers for each pair. They grow with the square of the batch.
//
// Without the shapes of tensors, sizes tell: the numbers of a matrix are a square r * r, most
// inputs divide by r (or half of it, where two views of a batch are joined), something has one
// number for each of r samples, and no weight has a dimension of r alone. All of it can be a
// coincidence, so these laws are never sure.
#pragma once

#include "analysis/plan/laws/size_law.h"
#include "analysis/plan/program/program.h"

namespace tidemark {

// Attention matrices are known already: their laws stay.
void find_sample_pairs(const RecordedProgram& program, SizeLaws& laws);

}  // namespace tidemark
