// Rows of everything except the allocator's history, and the order of the tables.
#include <algorithm>
#include <memory>
#include <optional>
#include <unordered_map>

#include "analysis/insight/outside_history.h"
#include "analysis/names/stack_lines.h"
#include "analysis/report/report.h"
#include "analysis/steps/steps.h"
#include "analysis/wording.h"
#include "export/counter_samples.h"
#include "export/mark_ranges.h"
#include "export/row_names.h"
#include "export/step_rows.h"
#include "export/tables/table_rows.h"

namespace tidemark {

namespace {

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) {
    if (!text.empty()) text += '\n';
    text += line;
  }
  return text;
}

// Names of kernels by process and string: each is demangled once.
class KernelNames {
 public:
  std::string_view of(const ExportProcess& process, uint32_t string) {
    std::string& name = names_[uint64_t{process.number} << 32 | string];
    if (name.empty()) name = kernel_name(process.name(string));
    return name;
  }

 private:
  std::unordered_map<uint64_t, std::string> names_;
};

class TableDump {
 public:
  TableDump(const ExportInput& input, const ExportOptions& options, TableSink& sink,
            const Progress& progress)
      : input_(input), options_(options), sink_(sink), progress_(progress) {}

  Status run() {
    Result<std::vector<ExportProcess>> processes = chosen_processes(input_, options_);
    if (!processes) return processes.error();
    processes_ = std::move(*processes);
    const Result<const Report*> report = report_of(input_, made_report_);
    if (!report) return report.error();
    report_ = *report;
    for (const TableSpec& spec : table_specs()) {
      if (options_.events || spec.name != "events") whole_ += weight_of(spec.name);
    }
    int64_t stacks = 0;
    for (const ExportProcess& process : processes_) {
      stacks_.push_back(std::make_unique<StackIds>(process.model->names, stacks));
      stacks += static_cast<int64_t>(process.model->names.stack_count());
    }
    dump_identity();
    dump_memory();
    dump_activity();
    dump_findings();
    dump_stacks();
    return sink_.finish();
  }

 private:
  // The approximate share of the work; tables with millions of rows are nearly all of it.
  static double weight_of(std::string_view table) {
    return table == "events" ? 60 : table == "allocations" ? 30 : table == "kernels" ? 10 : 1;
  }

  void begin(std::string_view table) {
    sink_.begin_table(table_spec(table));
    done_ += weight_;
    weight_ = weight_of(table);
    if (progress_) progress_(done_ / whole_);
  }

  TableSource source(size_t i) {
    // Assumes that each process takes the same share of a table's time.
    return {&processes_[i], stacks_[i].get(), options_.time, [this, i](double share) {
              const auto all = static_cast<double>(processes_.size());
              const double part = (static_cast<double>(i) + share) / all;
              if (progress_) progress_((done_ + weight_ * part) / whole_);
            }};
  }

  // Calls use(row, process, stacks) for the rows of a table that overlap the range.
  template <typename Row, typename Overlaps, typename Use>
  void dump_rows(std::string_view table, Overlaps&& overlaps, Use&& use) {
    begin(table);
    for (size_t i = 0; i < processes_.size(); ++i) {
      const ExportProcess& process = processes_[i];
      BlockDecoder decoder(*process.reader);
      for_each_block<Row>(*process.reader, decoder, process.id, [&](auto rows, const BlockRef&) {
        for (const Row& row : rows) {
          if (!sink_.good() || !overlaps(row)) continue;
          sink_.integer(process.number);
          use(row, process, *stacks_[i]);
          sink_.end_row();
        }
      });
    }
  }

  void dump_identity() {
    begin("trace");
    sink_.text(input_.model.path);
    sink_.text(report_->kind);
    sink_.integer(input_.model.start_ns);
    sink_.integer(input_.model.end_ns);
    sink_.number(input_.model.damage.blocks);
    sink_.number(input_.model.damage.rows);
    sink_.integer(input_.model.damage.unfinished ? 1 : 0);
    sink_.end_row();
    begin("ranks");
    for (const ExportProcess& process : processes_) put_rank(process);
    begin("devices");
    for (const ExportProcess& process : processes_)
      dump_devices(sink_, process, *report_, options_.time);
    begin("settings");
    for (const ExportProcess& process : processes_) {
      for (const Setting& s : process.model->settings) {
        sink_.integer(process.number);
        sink_.text(setting_scope_name(s.scope));
        sink_.text(process.name(s.key));
        sink_.text(process.name(s.value));
        sink_.end_row();
      }
    }
    begin("health");
    for (const ExportProcess& process : processes_) {
      for (const Health& h : process.model->health) {
        sink_.integer(process.number);
        sink_.integer(h.time_ns);
        sink_.text(health_kind_name(h.kind));
        sink_.number(h.value);
        sink_.text_or_null(process.name(h.detail));
        sink_.end_row();
      }
    }
  }

  void put_rank(const ExportProcess& process) {
    const Process& info = process.model->info;
    sink_.integer(process.number);
    sink_.integer(info.rank);
    sink_.integer(info.local_rank);
    sink_.number(info.world_size);
    sink_.text_or_null(process.name(info.host));
    sink_.number_or_null(info.pid);
    sink_.number_or_null(info.parent_pid);
    sink_.text_or_null(process.name(info.job));
    sink_.text_or_null(process.name(info.command));
    sink_.text_or_null(process.name(info.framework));
    sink_.text(source_name(info.source));
    sink_.integer(info.start_ns);
    sink_.integer(process.clock.offset_ns);
    sink_.integer(process.clock.drift_ppb);
    sink_.integer(process.clock.reference_ns);
    sink_.end_row();
  }

  void dump_memory() {
    int64_t next_allocation = 1;
    int64_t next_segment = 1;
    begin("allocations");
    for (size_t i = 0; i < processes_.size(); ++i) {
      dump_allocations(sink_, source(i), next_allocation, next_segment);
    }
    next_segment = 1;
    begin("segments");
    for (size_t i = 0; i < processes_.size(); ++i) dump_segments(sink_, source(i), next_segment);
    if (options_.events) {
      int64_t next_event = 1;
      begin("events");
      for (size_t i = 0; i < processes_.size(); ++i) dump_events(sink_, source(i), next_event);
    }
    begin("steps");
    for (const ExportProcess& process : processes_) dump_steps(process);
    begin("holes");
    for (size_t i = 0; i < processes_.size(); ++i) dump_holes(sink_, source(i));
    begin("ledger");
    for (size_t i = 0; i < processes_.size(); ++i) dump_ledgers(sink_, source(i), *report_);
    begin("out_of_memory");
    for (size_t i = 0; i < processes_.size(); ++i) dump_ooms(processes_[i], *stacks_[i]);
  }

  // The iterations that the report found.
  void dump_steps(const ExportProcess& process) {
    for (const int64_t device : process.model->device_ordinals()) {
      const Steps* found = steps_of(*report_, process, device);
      if (found == nullptr) continue;
      if (const AllocationHistory* model = process.model->framework_on(device); model != nullptr) {
        dump_steps(process, *found, *model, true);
      } else {
        dump_steps(process, *found, history_of_driver(process.model->driver, device), false);
      }
    }
  }

  // The table of events has those of PyTorch's allocator only.
  void dump_steps(const ExportProcess& process, const Steps& found, const AllocationHistory& model,
                  bool has_events) {
    for (const StepRow& step : steps_in(found, model, options_.time)) {
      sink_.integer(process.number);
      sink_.integer(model.device);
      sink_.number(step.number);
      sink_.integer(step.begin_ns);
      sink_.integer(step.end_ns);
      for (const uint32_t event : {step.begin_event, step.end_event}) {
        if (has_events) {
          sink_.integer(event);
        } else {
          sink_.null();
        }
      }
      sink_.number(step.levels.low_bytes);
      sink_.number(step.levels.high_bytes);
      sink_.end_row();
    }
  }

  void dump_ooms(const ExportProcess& process, StackIds& stacks) {
    for (const AllocationHistory& model : process.model->framework) {
      for (const FailedAllocation& f : model.failures) {
        if (!options_.time.contains(f.time_ns)) continue;
        put_oom(process, f.as_row(model.totals_after(f.event)),
                model.event_count() == 0 ? -1 : int64_t{f.event}, stacks);
      }
    }
    for (const OutOfMemory& oom : errors_outside_history(process)) {
      if (options_.time.contains(oom.time_ns)) put_oom(process, oom, -1, stacks);
    }
  }

  void put_oom(const ExportProcess& process, const OutOfMemory& oom, int64_t event,
               StackIds& stacks) {
    sink_.integer(process.number);
    sink_.integer(oom.device);
    sink_.integer(oom.time_ns);
    sink_.text(oom.layer == Layer::kDriver ? "driver" : "torch");
    sink_.number(oom.requested_bytes);
    // At a driver call, only the free bytes of the card may be known.
    const bool torch = oom.layer != Layer::kDriver;
    torch ? sink_.number(oom.allocated_bytes) : sink_.null();
    torch ? sink_.number(oom.reserved_bytes) : sink_.null();
    torch ? sink_.number(oom.device_free_bytes) : sink_.number_or_null(oom.device_free_bytes);
    event < 0 ? sink_.null() : sink_.integer(event);
    stacks.put(sink_, oom.stack);
    sink_.end_row();
  }

  void dump_activity() {
    const auto spans = [&](const auto& row) {
      const auto length = static_cast<int64_t>(std::min<uint64_t>(row.duration_ns, INT64_MAX / 4));
      return options_.time.overlaps(row.start_ns, row.start_ns + length);
    };
    const auto inside = [&](const auto& row) { return options_.time.contains(row.time_ns); };
    dump_rows<Kernel>("kernels", spans,
                      [&](const Kernel& r, const ExportProcess& p, StackIds&) { put(r, p); });
    dump_rows<Copy>("copies", spans,
                    [&](const Copy& r, const ExportProcess&, StackIds&) { put(r); });
    dump_rows<Communicator>(
        "communicators", [](const auto&) { return true; },
        [&](const Communicator& r, const ExportProcess& p, StackIds&) { put(r, p); });
    begin("collectives");
    for (const ExportProcess& process : processes_) {
      for (const NcclOperation& op : process.model->nccl) {
        if (!sink_.good() || !spans(op)) continue;
        sink_.integer(process.number);
        put(op, process);
        sink_.end_row();
      }
    }
    dump_rows<DriverEvent>(
        "driver_events", inside,
        [&](const DriverEvent& r, const ExportProcess& p, StackIds& stacks) { put(r, p, stacks); });
    begin("driver_allocations");
    for (size_t i = 0; i < processes_.size(); ++i) dump_driver_allocations(sink_, source(i));
    begin("samples");
    for (const ExportProcess& process : processes_) {
      for (const Counter& sample : trusted_counters(*process.model)) {
        if (!sink_.good() || !inside(sample)) continue;
        sink_.integer(process.number);
        put(sample);
        sink_.end_row();
      }
    }
    begin("marks");
    for (const ExportProcess& process : processes_) dump_marks(process);
  }

  void put(const Kernel& r, const ExportProcess& p) {
    sink_.integer(r.device);
    sink_.number(r.stream);
    sink_.integer(r.start_ns);
    sink_.number(r.duration_ns);
    sink_.text(kernels_.of(p, r.name));
    sink_.number(r.context);
    sink_.number(r.correlation);
    sink_.number_or_null(r.graph_node);
    for (const uint32_t v : {r.grid_x, r.grid_y, r.grid_z, r.block_x, r.block_y, r.block_z,
                             r.shared_bytes, r.registers}) {
      sink_.number(v);
    }
    sink_.number(r.local_memory_bytes);
  }

  void put(const Copy& r) {
    sink_.integer(r.device);
    sink_.number(r.stream);
    sink_.integer(r.start_ns);
    sink_.number(r.duration_ns);
    sink_.text(copy_kind_name(r.kind));
    sink_.number(r.size_bytes);
    sink_.number(r.correlation);
  }

  void put(const Communicator& r, const ExportProcess& p) {
    sink_.number(r.id);
    sink_.text_or_null(p.name(r.name));
    sink_.number(r.ranks);
    sink_.integer(r.rank);
    sink_.number(r.nodes);
    sink_.integer(r.device);
    sink_.integer(r.time_ns);
  }

  void put(const NcclOperation& r, const ExportProcess& p) {
    sink_.integer(r.device);
    sink_.number(r.communicator);
    sink_.number(r.sequence);
    sink_.text(nccl_kind_name(r.kind));
    sink_.text(p.name(r.function));
    sink_.text_or_null(p.name(r.datatype));
    sink_.number(r.count);
    sink_.number(r.size_bytes);
    sink_.integer(r.peer);
    sink_.integer(r.start_ns);
    sink_.number(r.duration_ns);
    r.gpu_duration_ns == 0 ? sink_.null() : sink_.integer(r.gpu_start_ns);
    sink_.number_or_null(r.gpu_duration_ns);
    sink_.text_or_null(p.name(r.algorithm));
    sink_.text_or_null(p.name(r.protocol));
    sink_.number(r.channels);
    sink_.number(r.stream);
    sink_.number_or_null(r.send_address);
    sink_.number_or_null(r.receive_address);
    sink_.number(r.thread);
  }

  void put(const DriverEvent& r, const ExportProcess& p, StackIds& stacks) {
    sink_.integer(r.device);
    sink_.integer(r.time_ns);
    sink_.text(driver_operation_name(r.operation));
    sink_.text(memory_kind_name(r.kind));
    sink_.number(r.address);
    sink_.number(r.size_bytes);
    sink_.number_or_null(r.handle);
    sink_.number(r.stream);
    sink_.number(r.thread);
    sink_.text_or_null(p.name(r.owner));
    sink_.number(r.result);
    sink_.number(r.flags);
    stacks.put(sink_, r.stack);
  }

  void put(const Counter& r) {
    sink_.integer(r.device);
    sink_.integer(r.time_ns);
    sink_.text(counter_kind_name(r.kind));
    sink_.number_or_null(r.subject);
    sink_.number(r.value);
  }

  void dump_marks(const ExportProcess& process) {
    for (const MarkRange& range : mark_ranges(process.model->marks)) {
      if (!options_.time.overlaps(range.mark.time_ns, range.end_ns)) continue;
      sink_.integer(process.number);
      sink_.integer(range.mark.device);
      sink_.text(mark_kind_name(range.mark.kind));
      sink_.text(mark_text(range.mark, process.name(range.mark.name)));
      sink_.text_or_null(process.name(range.mark.domain));
      sink_.number(range.mark.thread);
      sink_.integer(range.mark.time_ns);
      range.end_ns == INT64_MAX ? sink_.null() : sink_.integer(range.end_ns);
      sink_.integer(range.mark.phase == MarkPhase::kInstant ? 1 : 0);
      sink_.end_row();
    }
  }

  void dump_findings() {
    std::vector<const Finding*> chosen;
    for (const Finding& f : report_->findings) {
      if (is_chosen(f, processes_)) chosen.push_back(&f);
    }
    begin("findings");
    for (size_t i = 0; i < chosen.size(); ++i) {
      sink_.number(i + 1);
      sink_.text(chosen[i]->id);
      sink_.text(chosen[i]->severity);
      const bool of_one = chosen[i]->rank >= 0 || chosen[i]->pid != 0 || report_->ranks.size() == 1;
      of_one ? sink_.integer(processes_[process_of(*chosen[i], processes_)].number) : sink_.null();
      sink_.integer(chosen[i]->rank);
      sink_.integer(chosen[i]->device);
      sink_.text(chosen[i]->summary);
      sink_.text_or_null(joined(chosen[i]->frames));
      sink_.end_row();
    }
    begin("finding_evidence");
    for (size_t i = 0; i < chosen.size(); ++i) {
      for (const auto& [key, value] : chosen[i]->evidence) {
        sink_.number(i + 1);
        sink_.text(key);
        sink_.number(value);
        sink_.end_row();
      }
    }
    begin("finding_advice");
    for (size_t i = 0; i < chosen.size(); ++i) {
      for (const Advice& advice : chosen[i]->advice) {
        sink_.number(i + 1);
        sink_.text(advice.action);
        sink_.text(advice.detail);
        sink_.number(advice.saves_bytes);
        sink_.end_row();
      }
    }
  }

  // Only the stacks that rows refer to, each with all its frames.
  void dump_stacks() {
    begin("stacks");
    for_each_used_stack([&](size_t i, uint32_t stack, const std::vector<uint32_t>& frames) {
      const Dictionary& names = processes_[i].model->names;
      sink_.integer(stacks_[i]->base() + stack);
      sink_.integer(processes_[i].number);
      sink_.number(frames.size());
      sink_.text(stack_lines(names, stack));
      sink_.text(headline_of(names.stack_text(stack)));
      sink_.end_row();
    });
    begin("stack_frames");
    std::vector<std::vector<uint8_t>> used(processes_.size());  // by frame
    for_each_used_stack([&](size_t i, uint32_t stack, const std::vector<uint32_t>& frames) {
      for (size_t position = 0; position < frames.size(); ++position) {
        const uint32_t frame = frames[position];
        if (frame == 0) continue;  // it is not in the trace
        if (frame >= used[i].size()) used[i].resize(frame + 1);
        used[i][frame] = 1;
        sink_.integer(stacks_[i]->base() + stack);
        sink_.number(position);
        sink_.integer(frame_id(i, frame));
        sink_.end_row();
      }
    });
    begin("frames");
    for (size_t i = 0; i < processes_.size(); ++i) {
      const Dictionary& names = processes_[i].model->names;
      for (uint32_t frame = 0; frame < used[i].size(); ++frame) {
        if (used[i][frame] == 0) continue;
        const Frame& f = names.frame(frame);
        const std::string text = names.frame_text(frame);
        sink_.integer(frame_id(i, frame));
        sink_.integer(processes_[i].number);
        sink_.text_or_null(names.string(f.function));
        sink_.text_or_null(names.string(f.file));
        f.line > 0 ? sink_.integer(f.line) : sink_.null();
        sink_.text(text);
        sink_.end_row();
      }
    }
  }

  // Frame ids are per process, so the upper half holds the process.
  int64_t frame_id(size_t i, uint32_t frame) const {
    return (int64_t{processes_[i].number - 1} << 32) + frame;
  }

  template <typename Use>
  void for_each_used_stack(Use&& use) {
    for (size_t i = 0; i < processes_.size(); ++i) {
      for (uint32_t stack = 1; stack < stacks_[i]->size(); ++stack) {
        if (stacks_[i]->used(stack) && sink_.good()) {
          use(i, stack, processes_[i].model->names.frames_of(stack));
        }
      }
    }
  }

  const ExportInput& input_;
  const ExportOptions& options_;
  TableSink& sink_;
  const Progress& progress_;
  std::vector<ExportProcess> processes_;
  std::vector<std::unique_ptr<StackIds>> stacks_;
  const Report* report_ = nullptr;
  std::optional<Report> made_report_;
  KernelNames kernels_;
  double whole_ = 0;  // sum of the weights of all tables
  double done_ = 0;   // sum of the weights of the tables before this one
  double weight_ = 0;
};

}  // namespace

Status dump_tables(const ExportInput& input, const ExportOptions& options, TableSink& sink,
                   const Progress& progress) {
  return TableDump(input, options, sink, progress).run();
}

}  // namespace tidemark
