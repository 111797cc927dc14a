// Findings that say again what another one of the same device explains.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "analysis/findings/finding.h"

namespace tidemark {

// The findings of each device of each process, which may be thousands. They must outlive it.
class FindingsByDevice {
 public:
  using Device = std::tuple<int64_t, uint64_t, std::string, int64_t>;
  static Device device_of(const Finding& f) { return {f.rank, f.pid, f.file, f.device}; }

  explicit FindingsByDevice(const std::vector<Finding>& findings) {
    for (const Finding& f : findings) devices_[device_of(f)].push_back(&f);
  }
  // Those of its device, itself among them.
  const std::vector<const Finding*>& beside(const Finding& f) const {
    return devices_.at(device_of(f));
  }

 private:
  std::map<Device, std::vector<const Finding*>> devices_;
};

// A number of a finding's evidence.
std::optional<uint64_t> evidence_of(const Finding& f, std::string_view name);

// Whether a finding's advice only lowers what is reserved, not what is allocated.
bool lowers_reserved_only(const Finding& f);

// Whether what it advises costs time, or other results: a smaller batch, layers computed twice.
bool costs_computation(const Finding& f);

// Leaves out holes and varying sizes where pools of graphs or streams explain most of what they
// cost, and says in `capacity` of a smaller card which other finding is enough to fit it: its own
// advice that costs something is left out then, and `activation_peak` as well.
void keep_one_of_each_cause(std::vector<Finding>& findings);

}  // namespace tidemark
