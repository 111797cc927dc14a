// The stretches of a process in which the recorder left kernels out, to stay within its budget.
//
// A kernel belongs to a stretch by its launch; it may run later.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "proto/rows.h"

namespace tidemark {

struct Stretch {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;

  friend bool operator==(const Stretch&, const Stretch&) = default;
};

// From the marks of the kind kNotRecorded, in order, without overlaps. An end without a beginning
// began with the recording, a beginning without an end lasts until its end.
std::vector<Stretch> unrecorded_stretches(std::span<const Mark> marks, int64_t first_ns,
                                          int64_t last_ns);

uint64_t total_ns(std::span<const Stretch> stretches);
// Whether any of them has a time in common with [begin_ns, end_ns].
bool meets(std::span<const Stretch> stretches, int64_t begin_ns, int64_t end_ns);

}  // namespace tidemark
