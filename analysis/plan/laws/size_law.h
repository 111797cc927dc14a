// How the size of an allocation follows the batch size and the length of sequences.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace tidemark {

// No card has more, and sums of such sizes do not overflow.
inline constexpr double kMostPlannedBytes = 0x1p45;

// bytes = fixed + scaled * batch^b * seq^s, where batch and seq are factors of the recorded ones.
struct SizeLaw {
  uint64_t fixed = 0;
  uint64_t scaled = 0;
  uint8_t batch = 0;
  uint8_t seq = 0;
  // Otherwise it may as well follow the other powers below; one that is fixed may grow with both.
  bool sure = true;
  // Of a buffer for reductions (analysis/plan/laws/reduction_buffers.h): it stays at this size
  // until a sixteenth of the scaled part is more. 0: no limit.
  uint64_t most = 0;
  uint8_t other_batch = 0;
  uint8_t other_seq = 0;
  // Of what a line makes for one chunk after another (analysis/plan/laws/chunks.h): the bytes of a
  // whole one, which more of them do not exceed. 0: it is no such chunk.
  uint64_t chunk = 0;

  // Only how it follows the sequence is not sure.
  bool sequence_open() const {
    return !sure && scaled != 0 && other_batch == batch && chunk == 0;
  }
  uint64_t bytes(double batch_factor, double seq_factor) const {
    if (scaled == 0) return fixed;
    const double factor = std::pow(batch_factor, batch) * std::pow(seq_factor, seq);
    // At least one byte: an allocation of none is not made.
    double grown = std::ceil(static_cast<double>(scaled) * factor - 1e-6);
    if (most != 0) grown = std::max(std::min(grown, static_cast<double>(most)), grown / 16);
    if (chunk != 0) grown = std::min(grown, static_cast<double>(chunk));
    return fixed + static_cast<uint64_t>(std::clamp(grown, 1.0, kMostPlannedBytes));
  }
};

using SizeLaws = std::vector<SizeLaw>;  // one per allocation

class RecordedProgram;

// From one recording. Parameters, gradients, optimizer states, workspaces of libraries and copies
// of weights are fixed; inputs and what forward and backward passes allocate grows with the batch
// and with the sequence, attention matrices with its square. See docs/plan.md.
SizeLaws infer_laws(const RecordedProgram& program);

enum class Dimension : uint8_t { kBatch, kSequence };

struct LearntLaws {
  double ratio = 1;            // of the dimension: other to program
  uint64_t matched_bytes = 0;  // of the program's forward and backward passes and inputs
  uint64_t all_bytes = 0;
  uint64_t matched_other_bytes = 0;  // of those of the other recording
  uint64_t all_other_bytes = 0;
  bool other_dimension = false;  // nothing was learnt: lengths differ, and not batches
};

// Replaces laws by what a second recording of the same program shows, made with another batch size
// or sequence length. A ratio of 1 means that nothing was learnt: the recordings do not differ.
LearntLaws learn_laws(const RecordedProgram& program, const RecordedProgram& other,
                      Dimension dimension, SizeLaws& laws);

// How steps of the same kind differ: not at all, in their lengths, or in what cannot be told from a
// batch that varies.
enum class StepVariety : uint8_t { kNone, kUnknown, kLengths };

// Lengths that vary from step to step tell what grows with the sequence, and how. Compared are the
// steps of the kind in which the peak lies.
StepVariety learn_from_steps(const RecordedProgram& program, SizeLaws& laws);

}  // namespace tidemark
