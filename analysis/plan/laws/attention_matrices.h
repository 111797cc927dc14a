// The matrices of attention: results with a number for each pair of a query and a key, which grow
// with the square of the sequence.
//
// Softmax tells their sizes. Feed-forward layers have results of such sizes by chance, so where the
// recording names operations, their place decides:
//
//   forward    scores = product(q, k) -> scale, mask -> softmax -> dropout -> product(p, v)
//                       |------------ matrices ------------------------|
//   backward   BmmBackward -> (dropout) -> SoftmaxBackward -> (mask, scale) -> BmmBackward
//              |------------------- matrices ---------------------|
#pragma once

#include "analysis/plan/laws/size_law.h"
#include "analysis/plan/program/program.h"

namespace tidemark {

// Changes the laws of what grows with the sequence and has the size of a matrix.
void find_attention_matrices(const RecordedProgram& program, SizeLaws& laws);

}  // namespace tidemark
