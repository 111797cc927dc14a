// Which findings are shown, and in what order: the one to open a trace with, those that say the
// same about several ranks, and what to say where a problem has no advice.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "viewer/model/trace/view_model.h"

namespace tidemark::view {

// The most severe one, if it is a problem of this program: memory of others next to a run that fits
// is none. The report must be attached.
std::optional<size_t> finding_to_open(const Model& model);

// Indexes of findings that differ only in their rank or device.
using SameFindings = std::vector<size_t>;
// In the order of their first members.
std::vector<SameFindings> fold_findings(const std::vector<Finding>& findings);
// "rank 2, cuda:0", "ranks 0, 1, 3".
std::string place_text(const Report& report, const SameFindings& same);

// Indexes of errors that differ only in rank and time.
using SameOoms = std::vector<size_t>;
std::vector<SameOoms> fold_ooms(const Model& model);

// The finding with advice about the rank and device of a lane; null when there is none.
const Finding* finding_with_advice(const Model& model, uint32_t lane);
// Why there is no advice on a lane, and what shows more. `requested_bytes`: of the error it is
// about.
std::string why_no_advice(const Model& model, uint32_t lane, uint64_t requested_bytes = 0);

}  // namespace tidemark::view
