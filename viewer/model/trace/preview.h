// A first curve while the trace is still being read: the bytes requested and freed according to the
// events, without replaying the allocator. Coarse, and replaced by the exact curves.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "proto/read/trace_reader.h"

namespace tidemark::view {

struct PreviewCurve {
  std::string name;
  std::vector<double> time_ns;  // since Preview::start_ns
  std::vector<double> low;      // bytes
  std::vector<double> high;
};

struct Preview {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  std::vector<PreviewCurve> curves;
};

// The preview is drawn in every frame while the trace is read. All curves together have at most
// about this many points; each point has the extremes of as many events as necessary.
inline constexpr size_t kMostPreviewPoints = 8192;

// Makes the preview from the rows of each block, as the loading threads decode them.
class PreviewMaker {
 public:
  using Publish = std::function<void(const Preview&)>;

  // `publish` is called at intervals with what is known so far. A point covers `events_per_point`
  // events, and more when there would be too many points.
  PreviewMaker(std::span<const TraceReader> readers, Publish publish,
               uint64_t events_per_point = 1024);
  ~PreviewMaker();
  PreviewMaker(const PreviewMaker&) = delete;
  PreviewMaker& operator=(const PreviewMaker&) = delete;

  // Any thread may call this. `reader` is one of those given.
  void add(const TraceReader& reader, const BlockRef& ref, std::span<const FrameworkEvent> rows);
  // Of all rows so far.
  Preview preview() const;

 private:
  struct Running;
  using Key = std::tuple<const TraceReader*, uint32_t, int64_t>;  // reader, process, device

  Running& running_of(const Key& key);
  Preview make() const;

  const Publish publish_;
  const uint64_t events_per_point_;
  size_t points_ = 0;  // of one curve, at most
  int64_t start_ns_ = INT64_MAX;
  int64_t end_ns_ = INT64_MIN;
  mutable std::mutex mutex_;  // guards those below
  std::map<Key, Running> devices_;
  std::chrono::steady_clock::time_point last_look_;
};

}  // namespace tidemark::view
