// NCCL buffers take a share of the card.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "analysis/findings/rules.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

struct NcclBytes {
  uint64_t peak = 0;
  uint64_t communicators = 0;  // 0: not known
};

// Every communicator of a kind allocates the same set of buffers: the number of sets is the
// greatest common divisor of the counts of each size.
uint64_t sets_of_buffers(const std::map<uint64_t, uint64_t>& count_by_size) {
  uint64_t sets = 0;
  for (const auto& [size, count] : count_by_size) sets = std::gcd(sets, count);
  return sets;
}

NcclBytes nccl_bytes(const DeviceEvidence& d) {
  std::vector<std::pair<int64_t, int64_t>> edges;
  std::map<uint64_t, uint64_t> count_by_size;
  for (const DriverAllocation& a : d.process->driver.allocations) {
    if (a.device != d.device || !a.on_card() || d.process->names.string(a.owner) != "nccl") {
      continue;
    }
    edges.emplace_back(a.birth_ns, static_cast<int64_t>(a.size_bytes));
    edges.emplace_back(a.death_ns, -static_cast<int64_t>(a.size_bytes));
    ++count_by_size[a.size_bytes];
  }
  std::sort(edges.begin(), edges.end());
  NcclBytes nccl;
  int64_t level = 0;
  for (const auto& [time, bytes] : edges) {
    level += bytes;
    nccl.peak = std::max(nccl.peak, static_cast<uint64_t>(std::max<int64_t>(0, level)));
  }
  std::set<uint64_t> ids;
  for (const Communicator& c : d.process->communicators) {
    if (c.device == d.device) ids.insert(c.id);
  }
  if (ids.empty()) {  // their device is not always known
    for (const Communicator& c : d.process->communicators) ids.insert(c.id);
  }
  nccl.communicators = !ids.empty() ? ids.size() : sets_of_buffers(count_by_size);
  return nccl;
}

}  // namespace

void find_nccl_overhead(const Evidence& evidence, std::vector<Finding>& out) {
  constexpr uint64_t kMuch = uint64_t{1} << 30;
  for (const DeviceEvidence& d : evidence.devices) {
    const NcclBytes nccl = nccl_bytes(d);
    const bool much =
        nccl.peak >= kMuch || (d.total_bytes != 0 && nccl.peak >= d.total_bytes / 20);
    if (nccl.peak == 0 || !much) continue;
    Finding f = d.finding("nccl_overhead", kWarning,
                          fmt::format("NCCL buffers take {} of the card", size_text(nccl.peak)));
    f.evidence = {{"nccl_bytes", nccl.peak}, {"communicators", nccl.communicators}};
    if (nccl.communicators > 1) {
      const uint64_t saved = nccl.peak / nccl.communicators * (nccl.communicators - 1);
      f.advice.push_back({"fewer_communicators",
                          fmt::format("use one process group instead of {}: saves {}",
                                      nccl.communicators, size_text(saved)),
                          saved});
    }
    out.push_back(std::move(f));
  }
}

}  // namespace tidemark
