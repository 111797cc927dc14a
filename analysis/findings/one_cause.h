// Findings that say again what another one of the same device explains.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "analysis/findings/finding.h"

namespace tidemark {

// A number of a finding's evidence.
std::optional<uint64_t> evidence_of(const Finding& f, std::string_view name);

// Whether a finding's advice only lowers what is reserved, not what is allocated.
bool lowers_reserved_only(const Finding& f);

// Leaves out holes and varying sizes where pools of graphs or streams explain most of what they
// cost, and says in `capacity` of a smaller card which other finding is enough to fit it.
void keep_one_of_each_cause(std::vector<Finding>& findings);

}  // namespace tidemark
