#include "summary/summarize.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "analysis/history/minmax_pyramid.h"
#include "analysis/insight/outside_history.h"
#include "collector/recover/trace_file.h"
#include "summary/summary_fields.h"

namespace tidemark {

namespace {

int64_t edge(const CoarseCurve& curve, size_t part) {
  const int64_t length = curve.end_ns - curve.begin_ns;
  const auto parts = static_cast<int64_t>(CoarseCurve::kParts);
  const auto i = static_cast<int64_t>(part);
  return curve.begin_ns + length / parts * i + length % parts * i / parts;
}

void add_memory(CoarseCurve& curve, const AllocationHistory& memory) {
  const MinMaxPyramid pyramid(memory);
  for (size_t c = 0; c < kCurves; ++c) curve.most[c].resize(CoarseCurve::kParts);
  uint32_t first = 0;
  for (size_t part = 0; part < CoarseCurve::kParts; ++part) {
    uint32_t last = memory.event_count() - 1;  // the last event of the part
    if (part + 1 < CoarseCurve::kParts &&
        !memory.state_event_at(edge(curve, part + 1) - 1, last)) {
      last = first;
    }
    last = std::max(first, last);
    const Extremes extremes = pyramid.extremes(first, last + 1);
    for (size_t c = 0; c < kCurves; ++c) curve.most[c][part] = extremes.max[c];
    first = last;  // what it left holds when the next part begins
  }
}

void add_used(CoarseCurve& curve, const StepSeries& used) {
  std::vector<uint64_t>& most = curve.most[CoarseCurve::kUsed];
  most.resize(CoarseCurve::kParts, CoarseCurve::kUnknown);
  size_t next = 0;
  uint64_t now = CoarseCurve::kUnknown;
  for (size_t part = 0; part < CoarseCurve::kParts; ++part) {
    uint64_t highest = now;
    const int64_t end = edge(curve, part + 1);
    for (; next < used.time_ns.size() && used.time_ns[next] < end; ++next) {
      now = used.value[next];
      const bool within = used.time_ns[next] >= edge(curve, part);
      highest = !within || highest == CoarseCurve::kUnknown ? now : std::max(highest, now);
    }
    most[part] = highest;
  }
}

CoarseCurve curve_of(const ProcessModel& process, const AllocationHistory& memory,
                     bool of_driver) {
  CoarseCurve curve;
  curve.device = memory.device;
  curve.of_driver = of_driver;
  if (memory.event_count() == 0) return curve;
  curve.requests_known = knows_requests(memory);
  curve.begin_ns = memory.time_ns.front();
  curve.end_ns = memory.time_ns.back();
  if (curve.end_ns < curve.begin_ns) curve.end_ns = curve.begin_ns;
  add_memory(curve, memory);
  add_used(curve, LedgerSource(process, memory.device).used());
  return curve;
}

std::vector<CoarseCurve> curves_of(const ProcessModel& process) {
  std::vector<CoarseCurve> curves;
  std::set<int64_t> others;
  for (const AllocationHistory& m : process.framework) curves.push_back(curve_of(process, m, false));
  for (const DriverAllocation& a : process.driver.allocations) {
    if (a.device >= 0 && a.on_card() && process.framework_on(a.device) == nullptr) {
      others.insert(a.device);
    }
  }
  for (const int64_t device : others) {
    curves.push_back(curve_of(process, history_of_driver(process.driver, device), true));
  }
  return curves;
}

RankSummary summary_of(const ProcessModel& process, RankFacts facts, RankReport report,
                       const std::vector<Finding>& findings) {
  RankSummary s;
  s.facts = std::move(facts);
  s.digest = digest_of(process);
  s.report = std::move(report);
  s.report.detailed = false;
  for (DeviceReport& d : s.report.devices) {
    for (size_t i = 0; i + 1 < d.ooms.size(); ++i) d.ooms[i].frames.clear();
  }
  for (const Finding& f : findings) {
    if (f.rank == process.info.rank &&
        f.concerns(process.info.rank, process.info.pid, process.file)) {
      s.findings.push_back(f);
    }
  }
  s.curves = curves_of(process);
  s.events = memory_events(process);
  s.first_ns = process.first_ns;
  s.last_ns = process.last_ns;
  return s;
}

// What was just made is used as if it had been read: with and without `prepare`, reports say the
// same.
void store_and_read(FileSummary& summary) {
  ArchiveWriter out;
  out(summary);
  FileSummary read;
  ArchiveReader in(out.bytes);
  in(read);
  summary = std::move(read);
}

}  // namespace

Result<std::vector<MadeSummary>> summarize(const std::vector<HostFile>& files,
                                           uint64_t card_bytes) {
  std::vector<MadeSummary> made(files.size());
  std::vector<TraceReader> readers;
  std::vector<size_t> of_reader;
  for (size_t i = 0; i < files.size(); ++i) {
    FileSummary& summary = made[i].summary;
    Result<TraceReader> reader = open_trace_file(files[i].path, summary.notes);
    const std::optional<FileIdentity> identity = identity_of(files[i].path);
    if (!reader || !identity) {
      made[i].status = reader ? Error{files[i].path + ": cannot be read"} : reader.error();
      continue;
    }
    summary.identity = *identity;
    if (reader->damage().truncated) {
      summary.notes.push_back(files[i].path + ": truncated; the part before that is used");
    }
    made[i].lasting = !reader->damage().unfinished && identity->bytes == reader->file_bytes();
    for (const uint32_t process : files[i].left_out) reader->leave_out(process);
    readers.push_back(std::move(*reader));
    of_reader.push_back(i);
  }
  if (readers.empty()) return made.empty() ? Error{"no trace"} : made.front().status.error();
  Result<TraceModel> model = load_trace(readers);
  if (!model) return model.error();
  ReportOptions options;
  options.stacks = 0;
  options.tree_share = 2;
  options.part_of_job = true;
  options.card_bytes = card_bytes;
  // The ranks of one host are not compared with each other: those of the job will be.
  Result<Report> report = make_report(*model, options, *lay_groundwork(*model, RankComparison()));
  if (!report) return report.error();
  size_t next = 0;
  for (size_t r = 0; r < readers.size(); ++r) {
    MadeSummary& file = made[of_reader[r]];
    for (RankFacts& facts : read_rank_facts(readers[r])) {
      if (next == model->processes.size()) break;
      const ProcessModel& process = model->processes[next];
      if (process.info.pid != facts.info.pid || process.info.rank != facts.info.rank) continue;
      FrameHashes frames = frame_hashes(process.names);
      file.summary.ranks.push_back(summary_of(process, std::move(facts),
                                              std::move(report->ranks[next]), report->findings));
      file.summary.ranks.back().frames = number_of(frames);
      file.summary.ranks.back().events_from_ns = model->end_ns - report->events_ns;
      file.frames.push_back(std::move(frames));
      ++next;
    }
    if (r == 0) {
      file.summary.damage = model->damage;
      file.summary.unknown_blocks = model->unknown_blocks;
    }
    store_and_read(file.summary);
  }
  return made;
}

}  // namespace tidemark
