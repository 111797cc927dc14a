#include "export/perfetto/perfetto_export.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "analysis/wording.h"
#include "export/perfetto/activity.h"
#include "export/perfetto/counters.h"
#include "export/perfetto/events.h"
#include "proto/base/output_file.h"

namespace tidemark {

namespace {

// What is kept of one process after the first pass: the curves are written last, when it is known
// how many bytes are left for them.
struct ProcessTracks {
  ProcessTracks(PerfettoPackets& packets, uint32_t sequence, const ExportProcess& process)
      : tracks(packets, sequence, process), names(packets, process.model->names) {}
  PerfettoTracks tracks;
  PerfettoNames names;
};

class PerfettoExport {
 public:
  PerfettoExport(const ExportInput& input, const ExportOptions& options, ByteSink& sink,
                 const std::string& name, const Progress& progress)
      : input_(input), options_(options), name_(name), progress_(progress), packets_(sink) {}

  Result<ExportSummary> run() {
    Result<std::vector<ExportProcess>> processes = chosen_processes(input_, options_);
    if (!processes) return processes.error();
    std::optional<Report> made_report;
    if (Status status = take_report(made_report); !status) return status.error();
    const Report& report = input_.report != nullptr ? *input_.report : *made_report;
    clock_start_ns_ = clock_start();
    begin_trace();
    for (const ExportProcess& process : *processes) {
      auto described = std::make_unique<ProcessTracks>(packets_, trace_sequence_, process);
      write_process(process, *described, report, findings_of(process, *processes, report));
      for (const AllocationHistory& model : process.model->framework) {
        curves_.emplace_back(packets_, described->tracks, process, model, options_.time,
                             clock_start_ns_);
      }
      step(0.4 / static_cast<double>(processes->size()));
      if (packets_.bytes() > options_.max_bytes) return too_large();
    }
    if (Status status = write_curves(); !status) return status.error();
    if (Status status = packets_.finish(); !status) {
      return Error{name_ + ": " + status.error().message};
    }
    summary_.bytes = packets_.bytes();
    summary_.records = packets_.packets();
    if (clipped_ != 0) {
      summary_.notes.push_back(
          fmt::format("{} cut short: more than 256 overlapped", counted(clipped_, "range")));
    }
    return summary_;
  }

 private:
  // The categories, and the report if there is none yet.
  Status take_report(std::optional<Report>& made) {
    const TimeRange& time = options_.time;
    const size_t columns = category_columns();
    if (input_.report != nullptr) {
      categories_ = category_curves(input_.model, time.begin_ns, time.end_ns, columns);
      return {};
    }
    const std::shared_ptr<Groundwork> ground =
        lay_groundwork(input_.model, compare_ranks(input_.model));
    categories_ = category_curves(*ground, time.begin_ns, time.end_ns, columns);
    Result<Report> report = make_report(input_.model, {}, *ground);
    if (!report) return report.error();
    made = std::move(*report);
    return {};
  }

  // As many as fit into a small part of the file.
  size_t category_columns() const {
    constexpr uint64_t kMost = 2'000;
    constexpr uint64_t kPart = 16;
    constexpr uint64_t kSampleBytes = 40;
    uint64_t devices = 0;
    for (const ProcessModel& p : input_.model.processes) devices += p.framework.size();
    const uint64_t column = std::max<uint64_t>(devices, 1) * kCategoryOrder.size() * kSampleBytes;
    return std::min(kMost, options_.max_bytes / kPart / column);
  }

  // No timestamp may be earlier: the clocks of the curves count up from here.
  int64_t clock_start() const {
    return std::max<int64_t>(std::max(input_.model.start_ns, options_.time.begin_ns), 0);
  }

  // Ranks may come from many hosts, so their other clocks have no common meaning: the snapshot
  // declares them equal to real time, which is what every timestamp of the file is. Heap dumps are
  // skipped by trace_processor when MONOTONIC_COARSE cannot be converted.
  void begin_trace() {
    trace_sequence_ = packets_.new_sequence();
    pb::TracePacket packet;
    packet.set_trusted_packet_sequence_id(trace_sequence_);
    pb::ClockSnapshot& clocks = *packet.mutable_clock_snapshot();
    for (const uint32_t id :
         {kClockRealtime, kClockMonotonic, kClockMonotonicCoarse, kClockBoottime}) {
      pb::ClockSnapshot::Clock* clock = clocks.add_clocks();
      clock->set_clock_id(id);
      clock->set_timestamp(static_cast<uint64_t>(clock_start_ns_));
    }
    clocks.set_primary_trace_clock(kClockRealtime);
    packets_.put(packet);
  }

  static std::vector<const Finding*> findings_of(const ExportProcess& process,
                                                 std::span<const ExportProcess> all,
                                                 const Report& report) {
    std::vector<const Finding*> findings;
    for (const Finding& finding : report.findings) {
      if (is_chosen(finding, all) && &all[process_of(finding, all)] == &process) {
        findings.push_back(&finding);
      }
    }
    return findings;
  }

  void write_process(const ExportProcess& process, ProcessTracks& described, const Report& report,
                     std::span<const Finding* const> findings) {
    PerfettoTracks& tracks = described.tracks;
    PerfettoNames& names = described.names;
    PerfettoActivity activity{packets_, tracks, names, process, options_.time};
    clipped_ += activity.write_streams();
    clipped_ += activity.write_nccl();
    clipped_ += activity.write_marks();
    activity.write_driver_calls();
    write_sampled_counters(packets_, tracks, names, process, options_.time);
    write_owner_counters(packets_, tracks, names, process, options_.time);
    for (const CategoryCurve& curve : categories_) {
      if (curve.process == process.model) {
        write_category_counters(packets_, tracks, names, process, curve);
      }
    }
    for (const AllocationHistory& model : process.model->framework) {
      if (const Steps* steps = steps_of(report, process, model.device)) {
        write_steps(packets_, tracks, names, *steps, model, options_.time);
      }
      write_peak_and_ooms(packets_, tracks, names, process, model, options_.time);
    }
    write_driver_peaks(packets_, tracks, names, process, options_.time);
    write_recorded_ooms(tracks, names, process, options_.time);
    write_findings(tracks, names, process, findings, input_.model.end_ns, options_.time);
  }

  Status write_curves() {
    constexpr uint64_t kSequenceBytes = 128;  // its clock and defaults
    const uint64_t heads = kSequenceBytes * curves_.size();
    if (packets_.bytes() + heads > options_.max_bytes) return too_large();
    const uint64_t room = options_.max_bytes - packets_.bytes() - heads;
    uint64_t stretches = 0;
    CounterCurves::Size all;
    if (options_.max_bytes != UINT64_MAX) {
      if (most_bytes() > room) all = measured(0);
      if (all.bytes > room) stretches = stretches_for(room);
      if (all.bytes > room && stretches == 0) return too_large();
    }
    uint64_t written = 0;
    for (CounterCurves& curve : curves_) {
      const double share = 0.6 / static_cast<double>(curves_.size());
      written += curve.write(stretches, [&](double part) {
        if (progress_) progress_(done_ + part * share);
      });
      step(share);
    }
    if (stretches != 0) {
      summary_.notes.push_back(fmt::format(
          "curves thinned to stay below {}: {} of {} samples kept, including every peak",
          size_text(options_.max_bytes), grouped(written), grouped(all.samples)));
    }
    return {};
  }

  // If even this fits, nothing needs to be measured.
  uint64_t most_bytes() const {
    uint64_t bytes = 0;
    for (const CounterCurves& curve : curves_) bytes += curve.most_bytes();
    return bytes;
  }

  CounterCurves::Size measured(uint64_t stretches) const {
    CounterCurves::Size sum;
    for (const CounterCurves& curve : curves_) {
      const CounterCurves::Size size = curve.measure(stretches);
      sum.samples += size.samples;
      sum.bytes += size.bytes;
    }
    return sum;
  }

  // The number of stretches that the time can be cut into so that the kept samples fit; 0 if not
  // even one fits. The bytes grow almost linearly with it, so a few tries come close.
  uint64_t stretches_for(uint64_t room) const {
    constexpr int kTries = 6;
    uint64_t best = 0;
    uint64_t best_bytes = 0;
    uint64_t next = std::max<uint64_t>(room / kFewBytesPerStretch, 1);
    for (int i = 0; i < kTries && next != best; ++i) {
      const uint64_t bytes = std::max<uint64_t>(measured(next).bytes, 1);
      if (bytes <= room && bytes > best_bytes) {
        best = next;
        best_bytes = bytes;
        if (bytes > room - room / 10) break;
      }
      const double share = 0.95 * static_cast<double>(room) / static_cast<double>(bytes);
      next = static_cast<uint64_t>(static_cast<double>(next) * share);
      if (next == 0) break;
    }
    return best;
  }
  static constexpr uint64_t kFewBytesPerStretch = 100;

  Error too_large() const {
    return Error{
        fmt::format("{}: would exceed {} even without the curves; choose a part with --time or "
                    "--ranks, or raise "
                    "--max-size",
                    name_, size_text(options_.max_bytes))};
  }

  void step(double share) {
    done_ += share;
    if (progress_) progress_(done_);
  }

  const ExportInput& input_;
  const ExportOptions& options_;
  const std::string& name_;
  const Progress& progress_;
  PerfettoPackets packets_;
  std::vector<CounterCurves> curves_;
  std::vector<CategoryCurve> categories_;
  ExportSummary summary_;
  int64_t clock_start_ns_ = 0;
  uint32_t trace_sequence_ = 0;
  uint64_t clipped_ = 0;
  double done_ = 0;
};

}  // namespace

Result<ExportSummary> write_perfetto(const ExportInput& input, const ExportOptions& options,
                                     ByteSink& sink, const std::string& name,
                                     const Progress& progress) {
  return PerfettoExport(input, options, sink, name, progress).run();
}

Result<ExportSummary> export_perfetto(const ExportInput& input, const ExportOptions& options,
                                      const std::string& path, const Progress& progress) {
  Result<OutputFile> file = OutputFile::create(path);
  if (!file) return file.error();
  FdSink sink(file->fd());
  Result<ExportSummary> summary = write_perfetto(input, options, sink, path, progress);
  if (!summary) return summary;
  if (Status status = file->commit(); !status) return status.error();
  return summary;
}

}  // namespace tidemark
