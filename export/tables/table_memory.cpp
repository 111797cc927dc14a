// Rows of the allocator's history: allocations, segments and, on request, every event.
#include <algorithm>
#include <map>
#include <optional>

#include "analysis/wording.h"
#include "export/counter_samples.h"
#include "export/tables/table_rows.h"

namespace tidemark {

namespace {

// A range of reserved addresses from birth to death. A range that shrinks in parts becomes one row
// per part, so that the rows alive at any event add up to the reserved bytes.
struct SegmentRow {
  uint64_t address = 0;
  uint64_t size_bytes = 0;
  uint32_t change = 0;  // the segment change that created it
  uint32_t birth = 0;
  uint32_t death = kNever;
};

// Follows the segments of one model event by event.
class SegmentHistory {
 public:
  explicit SegmentHistory(const AllocationHistory& model) : model_(model) {}

  void apply(uint32_t event) {
    const uint32_t subject = model_.subject[event];
    if (model_.change[event] == Change::kGrow) grow(subject, event);
    if (model_.change[event] == Change::kShrink) shrink(model_.segment_changes[subject], event);
  }

  // The row of the segment that currently holds the address.
  std::optional<uint32_t> find(uint64_t address) const {
    auto next = alive_.upper_bound(address);
    if (next == alive_.begin()) return {};
    const uint32_t row = std::prev(next)->second;
    if (address - rows_[row].address >= rows_[row].size_bytes) return {};
    return row;
  }

  const std::vector<SegmentRow>& rows() const { return rows_; }

 private:
  void grow(uint32_t change, uint32_t event) {
    const SegmentChange& c = model_.segment_changes[change];
    alive_[c.address] = static_cast<uint32_t>(rows_.size());
    rows_.push_back({c.address, c.size_bytes, change, event, kNever});
  }

  void shrink(const SegmentChange& c, uint32_t event) {
    const uint64_t end = c.address + c.size_bytes;
    auto it = alive_.upper_bound(c.address);
    if (it != alive_.begin()) --it;
    while (it != alive_.end() && it->first < end) {
      const uint32_t row = it->second;
      const SegmentRow whole = rows_[row];
      const uint64_t whole_end = whole.address + whole.size_bytes;
      it = std::next(it);
      if (whole_end <= c.address) continue;
      alive_.erase(whole.address);
      const uint64_t from = std::max(whole.address, c.address);
      const uint64_t to = std::min(whole_end, end);
      // If part of the segment stays, the part that is released gets a new row.
      const bool front = from > whole.address;
      const bool back = to < whole_end;
      if (front) {
        rows_[row].size_bytes = from - whole.address;
        alive_[whole.address] = row;
      }
      if (back) stay(whole, to, whole_end, front ? std::optional<uint32_t>() : row);
      go(whole, from, to, event, front || back ? std::optional<uint32_t>() : row);
    }
  }

  void stay(const SegmentRow& whole, uint64_t from, uint64_t to, std::optional<uint32_t> row) {
    alive_[from] = put({from, to - from, whole.change, whole.birth, kNever}, row);
  }
  void go(const SegmentRow& whole, uint64_t from, uint64_t to, uint32_t event,
          std::optional<uint32_t> row) {
    put({from, to - from, whole.change, whole.birth, event}, row);
  }
  uint32_t put(const SegmentRow& value, std::optional<uint32_t> row) {
    if (!row) {
      row = static_cast<uint32_t>(rows_.size());
      rows_.push_back({});
    }
    rows_[*row] = value;
    return *row;
  }

  const AllocationHistory& model_;
  std::vector<SegmentRow> rows_;
  std::map<uint64_t, uint32_t> alive_;  // address -> row
};

void event_or_null(TableSink& sink, uint32_t event) {
  event == kNever ? sink.null() : sink.integer(event);
}

void event_time_or_null(TableSink& sink, const AllocationHistory& model, uint32_t event) {
  event == kNever ? sink.null() : sink.integer(model.time_ns[event]);
}

void put_allocation(TableSink& sink, const TableSource& source, const AllocationHistory& model,
                    const Allocation& a, int64_t id, std::optional<int64_t> segment) {
  const ExportProcess& process = *source.process;
  sink.integer(id);
  sink.integer(process.number);
  sink.integer(model.device);
  sink.number(a.address);
  sink.number(a.block_bytes);
  sink.number_or_null(a.requested_bytes);
  sink.number(a.stream);
  sink.integer(model.time_ns[a.birth]);
  event_time_or_null(sink, model, a.release);
  event_time_or_null(sink, model, a.death);
  sink.integer(a.birth);
  event_or_null(sink, a.release);
  event_or_null(sink, a.death);
  segment ? sink.integer(*segment) : sink.null();
  source.stacks->put(sink, a.stack);
  sink.text(category_name(a.category));
  sink.text_or_null(process.name(a.compile_context));
  sink.text_or_null(process.name(a.metadata));
  sink.integer(a.seeded ? 1 : 0);
  sink.text_or_null(process.name(process.model->labels.of(a.address, a.birth_ns(), a.death_ns())));
  sink.text_or_null(process.model->names.nn_module_text(process.model->nn_module_of(a)));
  sink.end_row();
}

// Called with every event of a walk: releases the pages before it and reports the progress.
void note_event(const TableSource& source, const AllocationHistory& model, uint32_t event) {
  constexpr uint32_t kEventsBetween = 1 << 17;
  release_behind(model, event);
  if (event % kEventsBetween == 0 && source.progress) {
    source.progress(static_cast<double>(event) / static_cast<double>(model.event_count()));
  }
}

std::string_view change_name(Change change) {
  switch (change) {
    case Change::kBirth:
      return "alloc";
    case Change::kPending:
      return "pending";
    case Change::kRelease:
      return "free_requested";
    case Change::kDeath:
      return "free_completed";
    case Change::kGrow:
      return "segment_grow";
    case Change::kShrink:
      return "segment_shrink";
  }
  return "unknown";
}

}  // namespace

void dump_allocations(TableSink& sink, const TableSource& source, int64_t& next_allocation,
                      int64_t& next_segment) {
  for (const AllocationHistory* history : by_device(*source.process->model)) {
    const AllocationHistory& model = *history;
    const EventRange events = events_in(model, source.range);
    SegmentHistory segments(model);
    for (uint32_t event = 0; event < events.end && sink.good(); ++event) {
      note_event(source, model, event);
      segments.apply(event);
      const Change change = model.change[event];
      if (change != Change::kBirth && change != Change::kPending) continue;
      const Allocation& a = model.allocations[model.subject[event]];
      const int64_t id = next_allocation++;
      if (!events.overlaps(a.birth, a.death)) continue;
      const std::optional<uint32_t> row = segments.find(a.address);
      put_allocation(sink, source, model, a, id,
                     row ? std::optional(next_segment + *row) : std::nullopt);
    }
    for (uint32_t event = events.end; event < model.event_count(); ++event) segments.apply(event);
    next_segment += static_cast<int64_t>(segments.rows().size());
  }
}

void dump_segments(TableSink& sink, const TableSource& source, int64_t& next_segment) {
  for (const AllocationHistory* history : by_device(*source.process->model)) {
    const AllocationHistory& model = *history;
    const EventRange events = events_in(model, source.range);
    SegmentHistory segments(model);
    for (uint32_t event = 0; event < model.event_count(); ++event) segments.apply(event);
    for (const SegmentRow& row : segments.rows()) {
      const int64_t id = next_segment++;
      if (!events.overlaps(row.birth, row.death)) continue;
      const SegmentChange& change = model.segment_changes[row.change];
      sink.integer(id);
      sink.integer(source.process->number);
      sink.integer(model.device);
      sink.number(row.address);
      sink.number(row.size_bytes);
      sink.number(change.stream);
      sink.integer(change.pool);
      sink.integer(change.expandable ? 1 : 0);
      sink.integer(model.time_ns[row.birth]);
      event_time_or_null(sink, model, row.death);
      sink.integer(row.birth);
      event_or_null(sink, row.death);
      source.stacks->put(sink, change.stack);
      sink.integer(change.seeded ? 1 : 0);
      sink.end_row();
    }
  }
}

void dump_events(TableSink& sink, const TableSource& source, int64_t& next_event) {
  for (const AllocationHistory* history : by_device(*source.process->model)) {
    const AllocationHistory& model = *history;
    const EventRange events = events_in(model, source.range);
    TotalsCursor cursor(model, events.first);
    const bool requests_known = knows_requests(model);
    for (uint32_t event = events.first; event < events.end && sink.good(); ++event) {
      note_event(source, model, event);
      cursor.apply(event);
      const Change change = model.change[event];
      const uint32_t subject = model.subject[event];
      const bool of_segment = change == Change::kGrow || change == Change::kShrink;
      sink.integer(next_event++);
      sink.integer(source.process->number);
      sink.integer(model.device);
      sink.integer(event);
      sink.integer(model.time_ns[event]);
      sink.text(change_name(change));
      sink.number(of_segment ? model.segment_changes[subject].size_bytes
                             : model.allocations.block_bytes(subject));
      sink.number(cursor.totals().allocated);
      requests_known ? sink.number(cursor.totals().requested) : sink.null();
      sink.number(cursor.totals().active);
      sink.number(cursor.totals().reserved);
      sink.end_row();
    }
  }
}

}  // namespace tidemark
