#include "analysis/report/growth_finding.h"

#include <algorithm>

namespace tidemark {

namespace {

bool has_evidence(const Finding& f, std::string_view name) {
  return std::any_of(f.evidence.begin(), f.evidence.end(),
                     [&](const auto& part) { return part.first == name; });
}

}  // namespace

bool tells_growth(const Finding& f) {
  if (f.severity == kInfo) return false;
  if (f.id == "creep") return true;
  // Others are of two steps at a time, or of a validation that lets go of its graphs.
  if (f.id == "retained_graph") {
    return has_evidence(f, "growth_bytes_per_step") || has_evidence(f, "bytes_per_step");
  }
  if (f.id == "eval_keeps_graph") return has_evidence(f, "growing_passes");
  return f.id == "kept_by_error" && f.severity == kError;
}

const Finding* growth_on(std::span<const Finding> findings, int64_t rank, uint64_t pid,
                         std::string_view file, int64_t device) {
  const auto found = std::find_if(findings.begin(), findings.end(), [&](const Finding& f) {
    return tells_growth(f) && f.concerns(rank, pid, file) && f.device == device;
  });
  return found == findings.end() ? nullptr : &*found;
}

}  // namespace tidemark
