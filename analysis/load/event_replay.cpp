#include "analysis/load/event_replay.h"

#include <algorithm>
#include <utility>

#include "analysis/events/capture_order.h"
#include "analysis/events/input_limits.h"

namespace tidemark {

namespace {

// Too few to be worth a second thread.
constexpr uint64_t kFewRows = 50'000;

bool grows(const FrameworkEvent& e) {
  return e.action == FrameworkAction::kSegmentAlloc || e.action == FrameworkAction::kSegmentMap;
}

}  // namespace

EventReplay::EventReplay(const TraceReader& reader, uint32_t id, const ProcessModel& process,
                         OtherEvents others, TraceIndexWriter* writer,
                         const std::function<void(uint64_t)>& advance, bool splits_work,
                         const EventWatch& watch)
    : reader_(reader),
      id_(id),
      process_(process),
      others_(std::move(others)),
      writer_(writer),
      advance_(advance),
      splits_work_(splits_work),
      watch_(watch) {}

std::vector<AllocationHistory> EventReplay::run() {
  uint64_t rows = 0;
  for (const BlockRef& ref : reader_.blocks_of(id_)) {
    if (ref.kind != BlockKind::kFrameworkEvents) continue;
    first_ns_ = std::min(blocks_.empty() ? INT64_MAX : first_ns_, sane(ref.first_ns));
    blocks_.push_back(ref);
    rows += ref.rows;
  }
  splits_work_ &= rows > kFewRows;
  read_meanings();
  read_states();
  if (has_later_state()) undo_events();
  if (splits_work_) columns_.emplace();
  replay_seeds();
  replay_events();
  std::vector<AllocationHistory> histories;
  for (auto& [ordinal, device] : devices_) {
    if (device.replay) histories.push_back(std::move(*device.replay).finish());
  }
  return histories;
}

void EventReplay::read_meanings() {
  const Dictionary& names = process_.names;
  if (names.nn_module_count() == 0) return;
  meanings_.resize(names.stack_count());
  for (uint32_t id = 0; id < meanings_.size(); ++id) {
    meanings_[id] = {names.plain_stack(id), names.stack(id).nn_module};
  }
}

void EventReplay::read_states() {
  BlockDecoder decoder(reader_);
  for_each_block<SegmentState>(reader_, decoder, id_, [&](auto rows, const BlockRef&) {
    for (const SegmentState& s : rows) {
      DeviceState* const d = device(s.device);
      if (d == nullptr) continue;
      d->seed.add(s);
      d->state_ns = std::max(d->state_ns, sane(s.time_ns));
    }
  });
  std::map<int64_t, int64_t> blocks_ns;
  for_each_block<BlockState>(reader_, decoder, id_, [&](auto rows, const BlockRef&) {
    for (const BlockState& b : rows) {
      DeviceState* const d = device(b.device);
      if (d == nullptr) continue;
      d->seed.add(b);
      blocks_ns[b.device] = sane(b.time_ns);
    }
  });
  damage_ += decoder.damage();
  if (!is_snapshot()) seed_segments_of_driver(blocks_ns);
}

// A kept window that was recorded without the bridge has the blocks that are older than it, but
// their segments as those of the driver.
void EventReplay::seed_segments_of_driver(const std::map<int64_t, int64_t>& blocks_ns) {
  for (const auto& [ordinal, time_ns] : blocks_ns) {
    DeviceState& d = devices_.at(ordinal);
    if (d.state_ns != INT64_MIN) continue;
    d.state_ns = time_ns;
    const auto is_older = [ordinal = ordinal, time_ns = time_ns](const FrameworkEvent& e) {
      return e.device == ordinal && e.time_ns <= time_ns;
    };
    std::map<uint64_t, FrameworkEvent> older;
    for (const FrameworkEvent& e : others_.segments) {
      if (!is_older(e)) continue;
      if (grows(e)) {
        older[e.address] = e;
      } else {
        older.erase(e.address);
      }
    }
    std::erase_if(others_.segments, is_older);
    for (const auto& [address, e] : older) {
      const bool expandable = e.action == FrameworkAction::kSegmentMap;
      SegmentState s{};
      s.time_ns = time_ns;
      s.address = address;
      s.size_bytes = e.size_bytes;
      s.device = ordinal;
      s.stack = e.stack;
      s.flags = (expandable ? kSegmentExpandable : 0U) |
                (e.size_bytes == 2 * kSmallBytes ? kSegmentSmall : 0U);
      d.seed.add(s);
    }
  }
}

// False: what is known of the state is older than the history.
bool EventReplay::has_later_state() const {
  if (blocks_.empty()) return false;
  // A snapshot shows every device at its end; one without segments held nothing then.
  if (is_snapshot()) return true;
  return std::any_of(devices_.begin(), devices_.end(),
                     [&](const auto& entry) { return entry.second.state_ns >= first_ns_; });
}

// The damage of the blocks is counted on the forward pass.
void EventReplay::undo_events() {
  EventBlocks backwards(reader_, {blocks_.rbegin(), blocks_.rend()}, splits_work_,
                        EventBlocks::Columns::kToUndo);
  for (auto ref = blocks_.rbegin(); ref != blocks_.rend(); ++ref) {
    const auto rows = backwards.next();
    for (auto row = rows.rbegin(); row != rows.rend(); ++row) {
      DeviceState* const d = device(row->device);
      if (d == nullptr) continue;
      d->first_ns = sane(row->time_ns);
      if (is_snapshot() && d->state_ns == INT64_MIN) d->state_ns = INT64_MAX;
      if (row->time_ns <= d->state_ns) d->seed.undo(*row);
    }
    advance_(ref->rows);
  }
}

int64_t EventReplay::seed_time(const DeviceState& device) const {
  const int64_t first_ns = device.first_ns != INT64_MAX ? device.first_ns : first_ns_;
  if (device.state_ns == INT64_MIN) return first_ns;
  return blocks_.empty() ? device.state_ns : std::min(first_ns, device.state_ns);
}

void EventReplay::replay_seeds() {
  for (auto& [ordinal, device] : devices_) {
    replay_of(device, ordinal).seed(device.seed, seed_time(device));
  }
}

void EventReplay::replay_events() {
  take(others_.async);
  if (blocks_.empty()) return;
  if (is_snapshot()) {
    replay_snapshot();
  } else {
    replay_capture();
  }
}

// A snapshot lists its events in their true order, but with coarser times. The state at the end
// tells which segments belong to private pools, and may be the only one to tell the stacks of
// blocks.
void EventReplay::replay_snapshot() {
  EventBlocks blocks(reader_, blocks_, splits_work_, EventBlocks::Columns::kAll, watch_);
  const bool fills_segments = !process_.torch_pools.empty();
  for (const BlockRef& ref : blocks_) {
    for (FrameworkEvent event : blocks.next()) {
      DeviceState* const d = device(event.device);
      if (d != nullptr && event.time_ns <= d->state_ns) {
        if (grows(event)) {
          const uint32_t pool = d->seed.take_pool_of_growth();
          if (event.pool == 0) event.pool = pool;
        } else if (event.action == FrameworkAction::kAlloc) {
          const uint32_t stack = d->seed.take_stack_of_allocation();
          if (event.stack == 0) event.stack = stack;
        }
      }
      if (fills_segments) {  // each block fills the segment before it
        if (event.action == FrameworkAction::kSegmentAlloc) segment_bytes_ = event.size_bytes;
        if (event.action == FrameworkAction::kAlloc) event.block_bytes = segment_bytes_;
      }
      take(event);
    }
    advance_(ref.rows);
  }
  damage_ += blocks.damage();
}

void EventReplay::replay_capture() {
  // No later block has an earlier row.
  std::vector<int64_t> next_ns(blocks_.size(), INT64_MAX);
  for (size_t i = blocks_.size() - 1; i-- > 0;) {
    next_ns[i] = std::min(next_ns[i + 1], blocks_[i + 1].first_ns);
  }
  EventBlocks blocks(reader_, blocks_, splits_work_, EventBlocks::Columns::kAll, watch_);
  CaptureOrder order(std::move(others_.segments), [this](auto events) { take(events); });
  for (size_t i = 0; i < blocks_.size(); ++i) {
    order.add(blocks.next(), next_ns[i]);
    advance_(blocks_[i].rows);
  }
  order.finish();
  damage_ += blocks.damage();
}

void EventReplay::take(std::span<const FrameworkEvent> events) {
  constexpr size_t kSoon = 16;
  constexpr size_t kNext = 6;
  for (size_t i = 0; i < events.size(); ++i) {
    if (i + kSoon < events.size() && last_ != nullptr && last_->replay) {
      last_->replay->prefetch(events[i + kSoon], events[i + kNext]);
    }
    take(events[i]);
  }
}

void EventReplay::take(const FrameworkEvent& event) {
  if (event.time_ns != sane(event.time_ns)) {
    FrameworkEvent changed = event;
    changed.time_ns = sane(event.time_ns);
    take(changed);
    return;
  }
  if (DeviceState* const d = device(event.device); d != nullptr) {
    replay_of(*d, event.device).apply(event);
  } else {
    ++damage_.rows;
  }
}

EventReplay::DeviceState* EventReplay::device(int64_t ordinal) {
  if (last_ != nullptr && last_ordinal_ == ordinal) return last_;
  if (devices_.size() >= kMostDevices && !devices_.contains(ordinal)) return nullptr;
  last_ = &devices_[ordinal];
  last_ordinal_ = ordinal;
  return last_;
}

HistoryReplay& EventReplay::replay_of(DeviceState& device, int64_t ordinal) {
  if (!device.replay) {
    device.replay.emplace(ordinal, process_.rules, meanings_, columns_ ? &*columns_ : nullptr);
    if (writer_ != nullptr) writer_->adopt(device.replay->model(), id_);
  }
  return *device.replay;
}

}  // namespace tidemark
