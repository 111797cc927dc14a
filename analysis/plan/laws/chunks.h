// Laws of what is computed in chunks of a fixed size, one after another: a loss over 4,096 tokens
// at a time makes as many logits for each of its chunks, whatever the batch.
#pragma once

#include "analysis/plan/laws/size_law.h"
#include "analysis/plan/program/program.h"

namespace tidemark {

// Outside of repeated layers, a line that makes blocks of one size, each gone before the next, is
// taken to go through chunks; so are gradients of these sizes in the meantime. That the chunks do
// not grow is sure where steps with other numbers of them have them in the same size.
void find_chunks(const RecordedProgram& program, SizeLaws& laws);

}  // namespace tidemark
