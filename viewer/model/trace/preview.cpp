#include "viewer/model/trace/preview.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

namespace tidemark::view {

namespace {

constexpr size_t kLeastPoints = 16;  // of one curve
// The least time between two calls of `publish`.
constexpr std::chrono::milliseconds kBetweenLooks(50);

// What was freed without a recorded allocation existed from the start: raise the curve by it.
PreviewCurve lifted(PreviewCurve out) {
  double lowest = 0;
  for (const double y : out.low) lowest = std::min(lowest, y);
  for (double& y : out.low) y -= lowest;
  for (double& y : out.high) y -= lowest;
  return out;
}

}  // namespace

// The running sum of one device's blocks.
struct PreviewMaker::Running {
  PreviewCurve curve;
  size_t most_points = kMostPreviewPoints;
  int64_t bytes = 0;
  int64_t low = 0;
  int64_t high = 0;
  uint64_t pending = 0;
  uint64_t per_point = 1;
  int64_t start_ns = 0;
  int64_t last_ns = 0;

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
    last_ns = e.time_ns;
    if (++pending == per_point) close();
  }

  void close() {
    if (pending == 0) return;
    curve.time_ns.push_back(static_cast<double>(last_ns - start_ns));
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

PreviewMaker::PreviewMaker(std::span<const TraceReader> readers, Publish publish,
                           uint64_t events_per_point)
    : publish_(std::move(publish)), events_per_point_(events_per_point) {
  std::set<std::pair<const TraceReader*, uint32_t>> processes;
  for (const TraceReader& reader : readers) {
    for (const BlockRef& ref : reader.blocks()) {
      if (ref.kind != BlockKind::kFrameworkEvents) continue;
      start_ns_ = std::min(start_ns_, ref.first_ns);
      end_ns_ = std::max(end_ns_, ref.last_ns);
      processes.emplace(&reader, ref.process);
    }
  }
  points_ = std::max(kLeastPoints, kMostPreviewPoints / std::max<size_t>(processes.size(), 1));
}

PreviewMaker::~PreviewMaker() = default;

PreviewMaker::Running& PreviewMaker::running_of(const Key& key) {
  const auto [it, fresh] = devices_.try_emplace(key);
  if (fresh) {
    it->second.curve.name = fmt::format("cuda:{}", std::get<2>(key));
    it->second.start_ns = start_ns_;
    it->second.most_points = points_;
    it->second.per_point = events_per_point_;
  }
  return it->second;
}

void PreviewMaker::add(const TraceReader& reader, const BlockRef& ref,
                       std::span<const FrameworkEvent> rows) {
  const std::lock_guard lock(mutex_);
  Running* running = nullptr;
  int64_t device = 0;
  for (const FrameworkEvent& e : rows) {
    if (running == nullptr || e.device != device) {
      device = e.device;
      running = &running_of({&reader, ref.process, device});
    }
    running->apply(e);
  }
  if (const auto now = std::chrono::steady_clock::now(); now - last_look_ > kBetweenLooks) {
    last_look_ = now;
    publish_(make());
  }
}

Preview PreviewMaker::preview() const {
  const std::lock_guard lock(mutex_);
  return make();
}

Preview PreviewMaker::make() const {
  Preview preview{start_ns_, end_ns_, {}};
  for (const auto& [device, last] : devices_) {
    Running running = last;
    running.close();
    preview.curves.push_back(lifted(std::move(running.curve)));
  }
  return preview;
}

}  // namespace tidemark::view
