#include "export/report/rank_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/names/stack_lines.h"
#include "analysis/wording.h"
#include "export/report/report_wording.h"

namespace tidemark {

namespace {

constexpr size_t kMostRanks = 8;  // in one line

std::string name_of(const std::string& name, uint64_t id) {
  return name.empty() ? fmt::format("{:#x}", id) : name;
}

std::string since_start(int64_t time_ns, int64_t start_ns) {
  return offset_text(time_ns - start_ns);
}

class RankLines {
 public:
  RankLines(const RankComparison& c, int64_t start_ns) : c_(c), start_ns_(start_ns) {}

  std::vector<std::string> run() {
    if (c_.compared) heights();
    for (const StuckCollective& s : c_.stuck) lines_.push_back(stuck_text(s, start_ns_));
    if (c_.compared || !c_.stuck.empty()) nccl();
    if (!lines_.empty()) clocks();
    return std::move(lines_);
  }

 private:
  std::string at(int64_t time_ns) const { return since_start(time_ns, start_ns_); }

  void heights() {
    const uint64_t extra = c_.highest.bytes - c_.typical.bytes;
    lines_.push_back(fmt::format(
        "highest{}: rank {} with {}{} at {}; typical: rank {} with {}; difference {}",
        c_.in_windows ? " within the kept windows" : "", c_.highest.rank,
        size_text(c_.highest.bytes), c_.framework ? " allocated" : " from the driver",
        at(c_.highest.time_ns), c_.typical.rank, size_text(c_.typical.bytes), size_text(extra)));
    if (!c_.divergence.found) return;
    if (extra != 0) excess(extra);
    if (!c_.divergence.time_ns) return;
    lines_.push_back(
        fmt::format("rank {} was mostly above the median of the ranks from {} up to its peak",
                    c_.divergence.rank, at(*c_.divergence.time_ns)));
  }

  // Of the highest rank over the typical one.
  void excess(uint64_t extra) {
    for (const OwnerExcess& o : c_.owners) {
      const uint64_t more = o.bytes - o.typical_bytes;
      if (more < extra / 20) continue;
      lines_.push_back(fmt::format("  {:>10} more for {} ({} instead of {})", size_text(more),
                                   o.owner.empty() ? "an unknown owner" : o.owner,
                                   size_text(o.bytes), size_text(o.typical_bytes)));
    }
    for (const StackExcess& s : c_.stacks) {
      const uint64_t more = s.bytes - s.typical_bytes;
      if (more < extra / 20) continue;
      lines_.push_back(fmt::format("  {:>10} more at {}", size_text(more),
                                   s.frames.empty() ? "(no stack)" : headline_of(s.frames)));
    }
  }

  void nccl() {
    if (c_.nccl.empty()) return;
    const auto [least, most] = std::minmax_element(
        c_.nccl.begin(), c_.nccl.end(),
        [](const NcclMemory& a, const NcclMemory& b) { return a.peak_bytes < b.peak_bytes; });
    lines_.push_back(least->peak_bytes == most->peak_bytes
                         ? fmt::format("NCCL holds {} on each of {}", size_text(most->peak_bytes),
                                       counted(c_.nccl.size(), "rank"))
                         : fmt::format("NCCL holds {} (rank {}) to {} (rank {})",
                                       size_text(least->peak_bytes), least->rank,
                                       size_text(most->peak_bytes), most->rank));
    for (const CommunicatorBytes& b : most->communicators) {
      if (b.id == 0 || most->communicators.size() < 2) continue;
      lines_.push_back(fmt::format("  {:>10} for {} on rank {}", size_text(b.bytes),
                                   name_of(b.name, b.id), most->rank));
    }
  }

  void clocks() {
    if (!c_.clocks_checked) return;
    lines_.push_back(fmt::format("clocks agree within {}",
                                 duration_text(static_cast<int64_t>(c_.clock_residual_ns))));
  }

  const RankComparison& c_;
  int64_t start_ns_;
  std::vector<std::string> lines_;
};

void put_height(JsonWriter& json, std::string_view name, const RankHeight& height) {
  if (!name.empty()) json.key(name);
  json.begin_object();
  json.field("rank", height.rank);
  json.field("device", height.device);
  json.field("bytes", height.bytes);
  json.field("time_ns", height.time_ns);
  json.end_object();
}

void put_numbers(JsonWriter& json, std::string_view name, const std::vector<int64_t>& numbers) {
  json.key(name);
  json.begin_array();
  for (const int64_t number : numbers) json.value(number);
  json.end_array();
}

void put_excess(JsonWriter& json, const RankComparison& c) {
  json.key("owners");
  json.begin_array();
  for (const OwnerExcess& o : c.owners) {
    json.begin_object();
    json.field("owner", o.owner);
    json.field("bytes", o.bytes);
    json.field("typical_bytes", o.typical_bytes);
    json.end_object();
  }
  json.end_array();
  json.key("stacks");
  json.begin_array();
  for (const StackExcess& s : c.stacks) {
    json.begin_object();
    json.field("bytes", s.bytes);
    json.field("typical_bytes", s.typical_bytes);
    json.key("frames");
    json.begin_array();
    for (const std::string& frame : s.frames) json.value(frame);
    json.end_array();
    json.end_object();
  }
  json.end_array();
}

void put_stuck(JsonWriter& json, const RankComparison& c) {
  json.key("waiting");
  json.begin_array();
  for (const StuckCollective& s : c.stuck) {
    json.begin_object();
    json.field("communicator", s.communicator);
    json.field("name", s.communicator_name);
    json.field("function", s.function);
    json.field("sequence", s.sequence);
    json.field("size_bytes", s.size_bytes);
    json.field("since_ns", s.since_ns);
    put_numbers(json, "ranks", s.waiting);
    put_numbers(json, "absent", s.absent);
    json.end_object();
  }
  json.end_array();
}

void put_nccl(JsonWriter& json, const RankComparison& c) {
  json.key("nccl");
  json.begin_array();
  for (const NcclMemory& n : c.nccl) {
    json.begin_object();
    json.field("rank", n.rank);
    json.field("device", n.device);
    json.field("peak_bytes", n.peak_bytes);
    json.field("allocations", n.allocations);
    json.field("user_bytes", n.user_bytes);
    json.field("host_bytes", n.host_bytes);
    json.key("communicators");
    json.begin_array();
    for (const CommunicatorBytes& b : n.communicators) {
      json.begin_object();
      json.field("communicator", b.id);
      json.field("name", b.name);
      json.field("ranks", b.ranks);
      json.field("bytes", b.bytes);
      json.end_object();
    }
    json.end_array();
    json.end_object();
  }
  json.end_array();
}

}  // namespace

std::string ranks_text(const std::vector<int64_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < std::min(ranks.size(), kMostRanks); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i]);
  }
  if (ranks.size() > kMostRanks) text += fmt::format(" and {} more", ranks.size() - kMostRanks);
  return text;
}

std::string stuck_text(const StuckCollective& s, int64_t start_ns) {
  return fmt::format(
      "{} {} been waiting since {} in {} number {} of {} for {}, which never called it",
      ranks_text(s.waiting), s.waiting.size() == 1 ? "has" : "have",
      since_start(s.since_ns, start_ns), s.function.empty() ? "a collective" : s.function,
      s.sequence, name_of(s.communicator_name, s.communicator), ranks_text(s.absent));
}

std::vector<std::string> rank_lines(const RankComparison& comparison, int64_t start_ns) {
  return RankLines(comparison, start_ns).run();
}

void put_rank_comparison(JsonWriter& json, const RankComparison& c) {
  json.key("rank_comparison");
  json.begin_object();
  json.field("compared", c.compared);
  if (c.compared) {
    json.field("layer", c.framework ? "torch" : "driver");
    json.field("peaks_of", c.in_windows ? "kept_window" : "run");
    put_height(json, "highest", c.highest);
    put_height(json, "typical", c.typical);
    json.key("heights");
    json.begin_array();
    for (const RankHeight& height : c.heights) put_height(json, "", height);
    json.end_array();
    put_excess(json, c);
    if (c.divergence.found) {
      json.key("diverged");
      json.begin_object();
      json.field("rank", c.divergence.rank);
      json.key("time_ns");
      c.divergence.time_ns ? json.value(*c.divergence.time_ns) : json.null();
      json.field("excess_bytes", c.divergence.excess_bytes);
      json.end_object();
    }
  }
  put_stuck(json, c);
  put_nccl(json, c);
  json.field("clock_residual_ns", c.clock_residual_ns);
  json.field("clocks_checked", c.clocks_checked);
  json.end_object();
}

}  // namespace tidemark
