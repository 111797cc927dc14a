// The input of an exporter: the model, its files for the tables that the model does not hold, and
// the user's choice of ranks and time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "analysis/load/trace_model.h"
#include "analysis/report/report.h"
#include "export/time_range.h"
#include "proto/read/trace_reader.h"

namespace tidemark {

struct ExportOptions {
  TimeRange time;
  std::vector<int64_t> ranks;       // empty: all
  std::vector<uint32_t> processes;  // by number, from 1; empty: all
  uint64_t max_bytes = UINT64_MAX;
  bool events = false;  // tables: also every event, with the totals after it
};

struct ExportInput {
  const TraceModel& model;
  std::span<const TraceReader> readers;
  // Made from the model as it was loaded, before infer_categories(): findings depend on which
  // categories the recorder knew. Made on demand when null.
  const Report* report = nullptr;
};

// The given report, or one that is made in `made`.
Result<const Report*> report_of(const ExportInput& input, std::optional<Report>& made);

struct ExportSummary {
  uint64_t bytes = 0;
  uint64_t records = 0;            // packets, rows or entries
  std::vector<std::string> notes;  // for the user: thinned counters, ranges cut short
};

// One process of the trace: its model and where its rows are.
struct ExportProcess {
  const ProcessModel* model = nullptr;
  const TraceReader* reader = nullptr;
  uint32_t id = 0;      // in its file
  uint32_t number = 0;  // in the export, from 1
  Alignment clock{};    // the correction of its times; all zeros: none

  std::string_view name(uint32_t string) const { return model->names.string(string); }
  // "rank 3 on node-a, pid 4711".
  std::string label() const;
};

// The processes that the user chose; an error when a rank or process is not in the trace.
Result<std::vector<ExportProcess>> chosen_processes(const ExportInput& input,
                                                    const ExportOptions& options);

// How to choose one of several processes: by rank or, where that is not enough, by number.
std::string ways_to_choose(std::span<const ExportProcess> processes);

// The report on a device; null if there is none.
const DeviceReport* device_report(const Report& report, const ExportProcess& process,
                                  int64_t device);
// The iterations that the report found on a device; null if it found none. Finding them again
// would take longer than the export.
const Steps* steps_of(const Report& report, const ExportProcess& process, int64_t device);

// The process that a finding belongs to: several may have its rank (-1: none), and a finding about
// the whole job belongs to none.
size_t process_of(const Finding& finding, std::span<const ExportProcess> processes);
// Whether the choice of ranks includes the finding.
bool is_chosen(const Finding& finding, std::span<const ExportProcess> processes);

// Out-of-memory errors that only the recorder saw: driver calls that ran out of memory, and errors
// of a framework without a history.
std::vector<OutOfMemory> errors_outside_history(const ExportProcess& process);

// The frames of a stack as text, innermost first, one per line.
std::string stack_lines(const Dictionary& names, uint32_t stack);

}  // namespace tidemark
