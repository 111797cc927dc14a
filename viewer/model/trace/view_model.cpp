#include "viewer/model/trace/view_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "analysis/insight/outside_history.h"
#include "analysis/steps/stack_roles.h"
#include "analysis/wording.h"
#include "export/export_input.h"
#include "export/report/loss_lines.h"

namespace tidemark::view {

namespace {

// Empty if a recorder named it, which chooses host and pid.
std::string name_of_file(const TraceReader* reader, uint64_t pid) {
  if (reader == nullptr) return "";
  std::string name = std::filesystem::path(reader->path()).stem().string();
  return name.ends_with(fmt::format("-{}", pid)) ? "" : name;
}

std::string process_name(const Model& model, uint32_t index) {
  const TraceModel& trace = model.trace;
  const Process& info = trace.processes[index].info;
  if (info.rank >= 0 && (info.world_size > 1 || trace.processes.size() > 1)) {
    return fmt::format("rank {}, ", info.rank);
  }
  if (trace.processes.size() < 2) return "";
  const bool file_each = model.source != nullptr && model.source->readers.size() > 1;
  const std::string file = file_each ? name_of_file(model.rows[index].reader, info.pid) : "";
  if (!file.empty()) return file + ", ";
  if (info.pid != 0) return fmt::format("pid {}, ", info.pid);
  return fmt::format("process {}, ", index + 1);
}

std::vector<OwnerCurve> owner_curves(const ProcessModel& process, const DriverHistory& history,
                                     bool of_driver) {
  std::vector<OwnerCurve> curves;
  for (const auto& [owner, series] : history.owners()) {
    const std::string_view name = process.names.string(owner);
    // The framework's segments are the reserved curve.
    if (!of_driver && name == "torch") continue;
    curves.push_back(
        {owner, name.empty() ? "unknown owner" : std::string(name), StepCurve(series)});
  }
  // With one owner, its curve is that of the device.
  if (of_driver && curves.size() == 1) curves.clear();
  std::stable_sort(curves.begin(), curves.end(), [](const OwnerCurve& a, const OwnerCurve& b) {
    return a.bytes.peak() > b.bytes.peak();
  });
  return curves;
}

bool has_private_pool(const AllocationHistory& memory) {
  return std::any_of(memory.segment_changes.begin(), memory.segment_changes.end(),
                     [](const SegmentChange& c) { return c.pool != 0; });
}

Lane make_lane(const Model& model, uint32_t index, const AllocationHistory& memory,
               bool of_driver) {
  const ProcessModel& process = model.trace.processes[index];
  Lane lane{.process = index,
            .memory = &memory,
            .of_driver = of_driver,
            .name = process_name(model, index) + fmt::format("cuda:{}", memory.device),
            .card = "",
            .total_bytes = 0,
            .curves = MinMaxPyramid(memory),
            .states = StateIndex(memory),
            .ledger = std::make_unique<LedgerSource>(process, memory.device),
            .requests_known = knows_requests(memory),
            .private_pools = has_private_pool(memory),
            .used = {},
            .owners = {},
            .driver_steps = of_driver ? find_steps(process, memory, StackRoles(process)) : Steps()};
  lane.used = StepCurve(lane.ledger->used());
  lane.owners = owner_curves(process, lane.ledger->driver(), of_driver);
  if (const Device* device = process.device(memory.device); device != nullptr) {
    lane.card = process.names.string(device->name);
    lane.total_bytes = device->total_bytes;
  }
  if (const std::string_view host = process.names.string(process.info.host); !host.empty()) {
    lane.card += (lane.card.empty() ? "" : ", ") + std::string(host);
  }
  return lane;
}

// Devices that the process used. Where it used none, those whose counters were sampled.
std::vector<int64_t> devices_to_show(const ProcessModel& process) {
  std::set<int64_t> used;
  for (const AllocationHistory& m : process.framework) used.insert(m.device);
  for (const DriverAllocation& a : process.driver.allocations) {
    if (a.device >= 0 && a.on_card()) used.insert(a.device);
  }
  for (const FailedAllocation& f : process.driver.failures) {
    if (f.device >= 0) used.insert(f.device);
  }
  if (used.empty() && !process.driver.contexts.empty()) {
    for (const Counter& c : process.counters) {
      if (c.kind == CounterKind::kDeviceUsed) used.insert(c.device);
    }
  }
  return {used.begin(), used.end()};
}

std::vector<RowsOfProcess> find_rows(const TraceModel& trace, const TraceSource* source) {
  std::vector<RowsOfProcess> rows(trace.processes.size());
  if (source == nullptr) return rows;
  if (const auto all = chosen_processes({trace, source->readers}, {}); all) {
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = {(*all)[i].reader, (*all)[i].id};
  }
  return rows;
}

void add_lanes(Model& model, uint32_t index) {
  const ProcessModel& process = model.trace.processes[index];
  model.events += memory_events(process);
  for (const int64_t device : devices_to_show(process)) {
    const AllocationHistory* memory = process.framework_on(device);
    const bool of_driver = memory == nullptr;
    if (of_driver) {
      model.driver_models.push_back(
          std::make_unique<const AllocationHistory>(history_of_driver(process.driver, device)));
      memory = model.driver_models.back().get();
    }
    model.lanes.push_back(make_lane(model, index, *memory, of_driver));
  }
}

void add_ooms(const ProcessModel& process, uint32_t lane_index, const Lane& lane,
              std::vector<OomPoint>& ooms) {
  for (const FailedAllocation& f : lane.memory->failures) ooms.push_back({f, lane_index});
  for (const FailedAllocation& f : process.driver.failures) {
    if (f.device != lane.memory->device) continue;
    OomPoint& oom = ooms.emplace_back(OomPoint{f, lane_index});
    lane.memory->event_at(f.time_ns, oom.event);
  }
}

// Known as soon as the files are read.
std::vector<std::string> losses_of(const TraceModel& trace,
                                   const std::vector<std::string>& warnings) {
  std::vector<std::string> out = warnings;
  if (trace.damage.blocks != 0) {
    out.push_back(fmt::format("{} could not be read ({} lost)",
                              counted(trace.damage.blocks, "damaged block"),
                              counted(trace.damage.rows, "event")));
  }
  if (trace.damage.truncated) out.emplace_back("the file ends in the middle of a block");
  if (trace.unknown_blocks != 0) {
    out.push_back(fmt::format("{} written by a newer tidemark could not be read",
                              counted(trace.unknown_blocks, "block")));
  }
  return out;
}

// The end of Latin Extended-A, which every font has.
constexpr char32_t kLastLatin = 0x17F;

// The character at `at`, which moves on; 0 where the text is not UTF-8.
char32_t next_character(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at++);
  if (first < 0x80) return first;
  const size_t more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : first >= 0xC0 ? 1 : 0;
  char32_t c = first & (0x3FU >> more);
  for (size_t i = 0; i < more; ++i, ++at) {
    if (at >= text.size() || (byte(at) & 0xC0) != 0x80) return 0;
    c = (c << 6) | (byte(at) & 0x3FU);
  }
  return more == 0 ? 0 : c;
}

std::vector<char16_t> characters_of(const TraceModel& trace) {
  std::set<char16_t> found;
  const auto add = [&](std::string_view text) {
    for (size_t at = 0; at < text.size();) {
      const char32_t c = next_character(text, at);
      if (c > kLastLatin && c < 0xFFFE) found.insert(static_cast<char16_t>(c));
    }
  };
  add(trace.path);
  for (const ProcessModel& process : trace.processes) {
    for (uint32_t i = 0; i <= process.names.string_count(); ++i) add(process.names.string(i));
  }
  return {found.begin(), found.end()};
}

// What the report says about the ranks.
std::vector<std::string> losses_in(const Model& model, const Report& report) {
  std::vector<std::string> out = killed_lines(report);
  // A report of the whole trace lists its processes in the trace's order.
  for (uint32_t i = 0; i < report.ranks.size(); ++i) {
    const RankReport& rank = report.ranks[i];
    const std::string process = process_name(model, i);
    if (rank.loss.events_dropped != 0) {
      out.push_back(fmt::format("{}{} dropped while recording", process,
                                counted(rank.loss.events_dropped, "event")));
    }
    for (const std::string& note : rank.loss.notes) out.push_back(process + note);
    for (const DeviceReport& d : rank.devices) {
      const std::string where = fmt::format("{}cuda:{}", process, d.device);
      const std::vector<std::string> lines = loss_lines(d, where, report.damage);
      out.insert(out.end(), lines.begin(), lines.end());
    }
  }
  return out;
}

// As the report decides it.
std::string_view no_stack_text(const ProcessModel& process) {
  if (process.framework.empty() || process.is_state_only()) return kNoStackText;
  return role_without_frames(process) == StackRole::kBackward ? kNoPythonStackText : kNoStackText;
}

}  // namespace

int64_t Model::end_of(const ProcessModel& process) const {
  const bool known = process.first_ns <= process.last_ns;
  return known ? std::min(process.last_ns, trace.end_ns) : trace.end_ns;
}

const DeviceReport* Model::report_of(const Lane& lane) const {
  // A report of the whole trace lists its processes in the trace's order.
  if (lane.process >= report.ranks.size()) return nullptr;
  for (const DeviceReport& d : report.ranks[lane.process].devices) {
    if (d.device == lane.device()) return &d;
  }
  return nullptr;
}

const Steps& Model::steps_of(const Lane& lane) const {
  static const Steps kNone;
  if (lane.of_driver) return lane.driver_steps;
  const DeviceReport* device = report_of(lane);
  return device == nullptr ? kNone : device->step_events;
}

std::string Model::comma_step(const Lane& lane, uint32_t event) const {
  const Steps& steps = steps_of(lane);
  if (steps.boundaries.size() < 2 || event < steps.boundaries.front()) return "";
  const size_t step = steps.before_event(event);
  return step < steps.begun(lane.memory->event_count()) ? ", " + steps.name(step) : "";
}

void Model::attach(const Insight& insight) {
  categories_known = insight.categories_known;
}

void Model::attach(Report made) {
  report = std::move(made);
  report_ready = true;
  for (std::string& loss : losses_in(*this, report)) losses.push_back(std::move(loss));
}

size_t Model::oom_to_show() const {
  size_t shown = 0;
  for (size_t i = 0; i < ooms.size(); ++i) {
    if (ooms[i].lane == ooms.front().lane) shown = i;
  }
  return shown;
}

uint32_t Model::lane_of(uint32_t process, int64_t device) const {
  for (uint32_t i = 0; i < lanes.size(); ++i) {
    if (lanes[i].process == process && lanes[i].device() == device) return i;
  }
  return UINT32_MAX;
}

namespace {

std::string_view path_of(const Model& model) {
  std::string_view path = model.trace.path;
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  return path;
}

// The last so many parts of a path; all of it if it has no more.
std::string_view path_end(std::string_view path, int parts) {
  size_t at = path.size();
  for (; parts > 0 && at != std::string_view::npos; --parts) {
    at = at == 0 ? std::string_view::npos : path.find_last_of('/', at - 1);
  }
  return at == std::string_view::npos ? path : path.substr(at + 1);
}

}  // namespace

std::string short_name(const Model& model) {
  return std::string(path_end(path_of(model), 1));
}

std::string name_beside(const Model& model, const Model& other) {
  const std::string_view mine = path_of(model);
  const std::string_view theirs = path_of(other);
  if (mine == theirs) return short_name(model);
  int parts = 1;
  while (path_end(mine, parts) == path_end(theirs, parts)) ++parts;
  return std::string(path_end(mine, parts));
}

std::unique_ptr<Model> prepare_model(TraceModel trace, const std::vector<std::string>& warnings,
                                     std::shared_ptr<const TraceSource> source) {
  auto model = std::make_unique<Model>();
  model->trace = std::move(trace);
  model->source = std::move(source);
  model->rows = find_rows(model->trace, model->source.get());
  model->report.comparison = compare_ranks(model->trace);
  model->characters = characters_of(model->trace);
  for (uint32_t p = 0; p < model->trace.processes.size(); ++p) {
    const ProcessModel& process = model->trace.processes[p];
    model->text.emplace_back(process.names, no_stack_text(process));
    model->pinned.emplace_back(process);
    const int64_t end_ns = model->end_of(process);
    model->marks.push_back(MarkLanes::of(process, end_ns));
    const RowsOfProcess& rows = model->rows[p];
    model->activity.push_back(Activity::of(process, rows.reader, rows.id, end_ns));
    const size_t first = model->lanes.size();
    add_lanes(*model, p);
    for (size_t i = first; i < model->lanes.size(); ++i) {
      add_ooms(process, static_cast<uint32_t>(i), model->lanes[i], model->ooms);
    }
    if (const uint64_t left_out = model->activity.back().left_out; left_out != 0) {
      model->losses.push_back(fmt::format("{}not drawn because they overlap too deeply: {}",
                                          process_name(*model, p),
                                          counted(left_out, "activity span")));
    }
    if (const MarkLanes& marks = model->marks.back(); marks.unmatched_ends + marks.left_out != 0) {
      model->losses.push_back(
          fmt::format("{} without a begin or nested too deeply, not drawn",
                      counted(marks.unmatched_ends + marks.left_out, "annotation")));
    }
  }
  std::stable_sort(model->ooms.begin(), model->ooms.end(),
                   [](const OomPoint& a, const OomPoint& b) { return a.time_ns < b.time_ns; });
  std::vector<std::string> losses = losses_of(model->trace, warnings);
  model->losses.insert(model->losses.begin(), losses.begin(), losses.end());
  return model;
}

std::unique_ptr<Model> prepare_model(OpenedJob opened) {
  std::unique_ptr<Model> model =
      prepare_model(std::move(opened.trace), opened.source->warnings, opened.source);
  model->report.comparison = opened.overview->comparison;
  model->job = std::move(opened.overview);
  return model;
}

Insight look_through(Model& model) {
  Insight insight;
  insight.ground = lay_groundwork(model.trace, model.report.comparison);
  insight.categories_known = take_categories(model.trace, *insight.ground);
  return insight;
}

Result<std::unique_ptr<const Model>> make_model(TraceModel trace,
                                                const std::vector<std::string>& warnings,
                                                std::shared_ptr<const TraceSource> source) {
  return make_model(prepare_model(std::move(trace), warnings, std::move(source)));
}

Result<std::unique_ptr<const Model>> make_model(std::unique_ptr<Model> model) {
  const Insight insight = look_through(*model);
  model->attach(insight);
  Result<Report> report = make_report(model->trace, {}, *insight.ground);
  if (!report) return report.error();
  model->attach(std::move(*report));
  return std::unique_ptr<const Model>(std::move(model));
}

}  // namespace tidemark::view
