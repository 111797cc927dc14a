#include "analysis/ranks/rank_digest.h"

#include <algorithm>

#include "proto/base/hash.h"

namespace tidemark {

RankDigest digest_of(const ProcessModel& process) {
  RankDigest digest;
  digest.rank = process.info.rank;
  for (const int64_t ordinal : process.device_ordinals()) {
    DeviceHeights heights;
    heights.device = ordinal;
    if (const AllocationHistory* m = process.framework_on(ordinal); m != nullptr) {
      heights.framework = m->allocated_peak;
    }
    const auto driver = process.driver.devices.find(ordinal);
    if (driver != process.driver.devices.end()) heights.driver = driver->second.card_peak;
    digest.devices.push_back(heights);
  }
  digest.nccl = nccl_memory(process);
  digest.calls = collective_calls(process);
  digest.clock_residual_ns = process.clock.residual_ns;
  digest.clock_checked = process.clock.samples != 0;
  digest.clock_known = process.clock.method != AlignmentMethod::kNone;
  digest.kept_window = process.window.exists();
  return digest;
}

uint64_t frame_hash(std::string_view text) {
  uint64_t hash = 0xCBF29CE484222325U;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
  return mix_bits(hash);
}

FrameHashes frame_hashes(const Dictionary& names) {
  FrameHashes hashes;
  for (uint32_t id = 1; id < names.frame_count(); ++id) {
    hashes.push_back(frame_hash(names.frame_text(id)));
  }
  std::sort(hashes.begin(), hashes.end());
  hashes.erase(std::unique(hashes.begin(), hashes.end()), hashes.end());
  return hashes;
}

}  // namespace tidemark
