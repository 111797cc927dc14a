#include "viewer/model/trace/preview.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "proto/read/block_decoder.h"

namespace tidemark::view {

namespace {

constexpr size_t kLeastPoints = 16;  // of one curve
// The least time between two calls of `publish`.
constexpr std::chrono::milliseconds kBetweenLooks(50);

// The running sum of one device's blocks.
struct Running {
  PreviewCurve curve;
  size_t most_points = kMostPreviewPoints;
  int64_t bytes = 0;
  int64_t low = 0;
  int64_t high = 0;
  uint64_t pending = 0;
  uint64_t per_point = 1;
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
    if (++pending == per_point) close(e.time_ns);
  }

  void close(int64_t time_ns) {
    if (pending == 0) return;
    curve.time_ns.push_back(static_cast<double>(time_ns - start_ns));
    curve.low.push_back(static_cast<double>(low));
    curve.high.push_back(static_cast<double>(high));
    pending = 0;
    if (curve.time_ns.size() >= most_points) join_pairs();
  }

  // From here on a point covers twice as many events. The extremes are kept.
  void join_pairs() {
    const size_t pairs = curve.time_ns.size() / 2;
    for (size_t i = 0; i < pairs; ++i) {
      curve.time_ns[i] = curve.time_ns[2 * i + 1];
      curve.low[i] = std::min(curve.low[2 * i], curve.low[2 * i + 1]);
      curve.high[i] = std::max(curve.high[2 * i], curve.high[2 * i + 1]);
    }
    for (std::vector<double>* column : {&curve.time_ns, &curve.low, &curve.high}) {
      column->resize(pairs);
    }
    per_point *= 2;
  }
};

// What was freed without a recorded allocation existed from the start: raise the curve by it.
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
                  const std::function<void(const Preview&)>& publish, uint64_t events_per_point) {
  Preview preview;
  preview.start_ns = INT64_MAX;
  preview.end_ns = INT64_MIN;
  std::set<std::pair<size_t, uint32_t>> processes;
  for (size_t r = 0; r < readers.size(); ++r) {
    for (const BlockRef& ref : readers[r].blocks()) {
      if (ref.kind != BlockKind::kFrameworkEvents) continue;
      preview.start_ns = std::min(preview.start_ns, ref.first_ns);
      preview.end_ns = std::max(preview.end_ns, ref.last_ns);
      processes.emplace(r, ref.process);
    }
  }
  if (preview.start_ns > preview.end_ns) return;
  const size_t points = std::max(kLeastPoints, kMostPreviewPoints / processes.size());

  using Key = std::tuple<size_t, uint32_t, int64_t>;
  std::map<Key, Running> devices;
  const auto running_of = [&](const Key& key) -> Running& {
    const auto [it, fresh] = devices.try_emplace(key);
    if (fresh) {
      it->second.curve.name = fmt::format("cuda:{}", std::get<2>(key));
      it->second.start_ns = preview.start_ns;
      it->second.most_points = points;
      it->second.per_point = events_per_point;
    }
    return it->second;
  };
  const auto look = [&] {
    preview.curves.clear();
    for (const auto& [key, running] : devices) preview.curves.push_back(lifted(running.curve));
    publish(preview);
  };
  auto last_look = std::chrono::steady_clock::time_point();
  for (size_t r = 0; r < readers.size(); ++r) {
    BlockDecoder decoder(readers[r]);
    for (const BlockRef& ref : readers[r].blocks()) {
      if (stop.load(std::memory_order_relaxed)) return;
      if (ref.kind != BlockKind::kFrameworkEvents) continue;
      using E = FrameworkEvent;
      Running* running = nullptr;
      int64_t device = 0;
      for (const E& e : decoder.rows<E, &E::time_ns, &E::size_bytes, &E::device, &E::action>(ref)) {
        if (running == nullptr || e.device != device) {
          device = e.device;
          running = &running_of({r, ref.process, device});
        }
        running->apply(e);
      }
      if (const auto now = std::chrono::steady_clock::now(); now - last_look > kBetweenLooks) {
        last_look = now;
        look();
      }
    }
    for (auto& [key, running] : devices) {
      if (std::get<0>(key) == r) running.close(preview.end_ns);
    }
  }
  look();
}

}  // namespace tidemark::view
