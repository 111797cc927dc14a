#include "viewer/model/preview.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "proto/block_decoder.h"

namespace tidemark::view {

namespace {

constexpr uint32_t kEventsPerPoint = 1024;
// How many blocks of events go by between two looks at the curve.
constexpr int kBlocksPerLook = 16;

// The running sum of one device's blocks.
struct Running {
  PreviewCurve curve;
  int64_t bytes = 0;
  int64_t low = 0;
  int64_t high = 0;
  uint32_t pending = 0;
  int64_t start_ns = 0;

  void apply(const FrameworkEvent& e) {
    if (e.action == FrameworkAction::kAlloc) {
      bytes += static_cast<int64_t>(e.size_bytes);
    } else if (e.action == FrameworkAction::kFreeCompleted) {
      bytes -= static_cast<int64_t>(e.size_bytes);
    } else {
      return;
    }
    low = pending == 0 ? bytes : std::min(low, bytes);
    high = pending == 0 ? bytes : std::max(high, bytes);
    if (++pending == kEventsPerPoint) close(e.time_ns);
  }

  void close(int64_t time_ns) {
    if (pending == 0) return;
    curve.time_ns.push_back(static_cast<double>(time_ns - start_ns));
    curve.low.push_back(static_cast<double>(low));
    curve.high.push_back(static_cast<double>(high));
    pending = 0;
  }
};

// What was freed without having been allocated lay there from the start: lift the curve by it.
PreviewCurve lifted(const PreviewCurve& curve) {
  PreviewCurve out = curve;
  double lowest = 0;
  for (const double y : out.low) lowest = std::min(lowest, y);
  for (double& y : out.low) y -= lowest;
  for (double& y : out.high) y -= lowest;
  return out;
}

}  // namespace

void make_preview(std::span<const TraceReader> readers, const std::atomic<bool>& stop,
                  const std::function<void(const Preview&)>& publish) {
  Preview preview;
  preview.start_ns = INT64_MAX;
  preview.end_ns = INT64_MIN;
  for (const TraceReader& reader : readers) {
    for (const BlockRef& ref : reader.blocks()) {
      if (ref.kind != BlockKind::kFrameworkEvents) continue;
      preview.start_ns = std::min(preview.start_ns, ref.first_ns);
      preview.end_ns = std::max(preview.end_ns, ref.last_ns);
    }
  }
  if (preview.start_ns > preview.end_ns) return;

  std::map<std::tuple<size_t, uint32_t, int64_t>, Running> devices;
  const auto look = [&] {
    preview.curves.clear();
    for (const auto& [key, running] : devices) preview.curves.push_back(lifted(running.curve));
    publish(preview);
  };
  int blocks = 0;
  for (size_t r = 0; r < readers.size(); ++r) {
    BlockDecoder decoder(readers[r]);
    for (const BlockRef& ref : readers[r].blocks()) {
      if (stop.load(std::memory_order_relaxed)) return;
      if (ref.kind != BlockKind::kFrameworkEvents) continue;
      for (const FrameworkEvent& e : decoder.rows<FrameworkEvent>(ref)) {
        const auto [it, fresh] = devices.try_emplace({r, ref.process, e.device});
        if (fresh) {
          it->second.curve.name = fmt::format("cuda:{}", e.device);
          it->second.start_ns = preview.start_ns;
        }
        it->second.apply(e);
      }
      if (++blocks % kBlocksPerLook == 0) look();
    }
    for (auto& [key, running] : devices) {
      if (std::get<0>(key) == r) running.close(preview.end_ns);
    }
  }
  look();
}

}  // namespace tidemark::view
