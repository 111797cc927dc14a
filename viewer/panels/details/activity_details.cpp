#include "viewer/panels/details/activity_details.h"

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>

#include "analysis/wording.h"
#include "viewer/model/owner_names.h"
#include "viewer/model/ticks.h"
#include "viewer/widgets/fonts.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

constexpr float kColumnPx = 110;
// A group can have thousands of operations; the table lists the rest.
constexpr size_t kMostOfGroup = 12;

std::string instant_of(const Model& model, int64_t time_ns, double length) {
  return instant_text(since_start(model, time_ns), std::max(length, 1e3));
}

std::string communicator_name(const ProcessModel& process, uint64_t id) {
  for (const Communicator& c : process.communicators) {
    if (c.id != id) continue;
    const std::string_view name = process.names.string(c.name);
    return fmt::format("{}{}{:#x}, {}", name, name.empty() ? "" : " ", id,
                       counted(c.ranks, "rank"));
  }
  return fmt::format("{:#x}", id);
}

void draw_stuck(const Model& model, const NcclOperation& op) {
  for (const StuckCollective& stuck : model.report.comparison.stuck) {
    if (stuck.communicator != op.communicator) continue;
    const bool same = stuck.sequence == op.sequence || time_of(op, model.trace.end_ns).never_ran;
    if (!same) continue;
    const auto list = [](const std::vector<int64_t>& ranks) {
      std::string out;
      for (const int64_t r : ranks) out += (out.empty() ? "" : ", ") + std::to_string(r);
      return out;
    };
    ImGui::PushStyleColor(ImGuiCol_Text, paint(theme().bad));
    text_wrapped(fmt::format("It never ran: rank {} waited, rank {} never called it.",
                             list(stuck.waiting), list(stuck.absent)));
    ImGui::PopStyleColor();
  }
}

void draw_operation(const Model& model, const ProcessModel& process, const NcclOperation& op) {
  const auto string = [&](uint32_t id) { return process.names.string(id); };
  fact("communicator", communicator_name(process, op.communicator), px(kColumnPx));
  if (op.kind == NcclKind::kPointToPoint) {
    fact("peer", fmt::format("rank {}", op.peer), px(kColumnPx));
  } else {
    fact("sequence", grouped(op.sequence), px(kColumnPx));
  }
  fact("moves",
       fmt::format("{}{}", size_text(op.size_bytes),
                   op.datatype == 0
                       ? ""
                       : fmt::format(" ({} x {})", grouped(op.count), string(op.datatype))),
       px(kColumnPx));
  if (op.algorithm != 0 || op.protocol != 0) {
    fact("by",
         fmt::format("{} {}{}", string(op.algorithm), string(op.protocol),
                     op.channels == 0 ? "" : ", " + counted(op.channels, "channel")),
         px(kColumnPx));
  }
  fact("called", instant_of(model, op.start_ns, static_cast<double>(op.duration_ns)),
       px(kColumnPx));
  if (op.gpu_start_ns != 0) {
    fact("on the card",
         fmt::format("{} later, for {}",
                     span_text(static_cast<double>(op.gpu_start_ns - op.start_ns)),
                     span_text(static_cast<double>(op.gpu_duration_ns))),
         px(kColumnPx));
  } else {
    fact("on the card", "unknown: its kernel was not recorded", px(kColumnPx));
  }
}

}  // namespace

void ActivityDetails::update(const Model& model, const ActivityRef& ref, const ActivityRow& row) {
  if (model_ == &model && ref_ == ref) return;
  model_ = &model;
  ref_ = ref;
  kernel_.reset();
  parts_.clear();
  together_.clear();
  if (row.kind == ActivityKind::kKernels) {
    Kernel kernel{};
    const RowsOfProcess& rows = model.rows[ref.process];
    if (rows.reader != nullptr &&
        read_kernel(*rows.reader, rows.id, row.spans.begin_ns(ref.index), row.stream, kernel)) {
      kernel_ = kernel;
    }
    return;
  }
  const std::vector<NcclOperation>& own = model.trace.processes[ref.process].nccl;
  const uint32_t index = row.spans.item(ref.index);
  const NcclOperation& op = own[index];
  for (uint32_t i = 0; op.group != 0 && i < own.size(); ++i) {
    if (i != index && own[i].group == op.group) together_.push_back(i);
  }
  if (op.kind != NcclKind::kCollective) return;
  for (const ProcessModel& process : model.trace.processes) {
    const auto it =
        std::find_if(process.nccl.begin(), process.nccl.end(), [&](const NcclOperation& other) {
          return other.communicator == op.communicator && other.sequence == op.sequence &&
                 other.kind == op.kind;
        });
    if (it == process.nccl.end()) continue;
    parts_.push_back({process.info.rank, it->start_ns, it->gpu_start_ns, it->gpu_duration_ns});
  }
}

void ActivityDetails::draw_memory(const Model& model, const ActivityRef& ref,
                                  const ActivityRow& row) {
  const uint32_t index = model.lane_of(ref.process, row.device);
  if (index == UINT32_MAX) return;
  const Lane& lane = model.lanes[index];
  const int64_t begin = row.spans.begin_ns(ref.index);
  const int64_t end = row.spans.end_ns(ref.index);
  ImGui::SeparatorText("Memory when it began");
  uint32_t first = 0;
  uint32_t last = 0;
  if (lane.memory->event_at(begin, first)) {
    const CurveValues now = lane.curves.values_after(first);
    if (lane.of_driver) {
      fact("held", size_text(now[0]), px(kColumnPx));
    } else {
      fact("allocated", size_text(now[0]), px(kColumnPx));
      fact("reserved", size_text(now[2]), px(kColumnPx));
    }
    if (lane.memory->event_at(end, last) && last > first) {
      const Extremes while_running = lane.curves.extremes(first, last + 1);
      fact(
          "while it ran",
          fmt::format("{} to {}", size_text(while_running.min[0]), size_text(while_running.max[0])),
          px(kColumnPx));
    }
  } else {
    text_dim("Nothing was allocated yet.");
  }
  if (const uint64_t used = lane.card_used_at(begin); used != 0) {
    fact("card used", size_text(used), px(kColumnPx));
  }
  ImGui::SeparatorText("Memory while it ran");
  stretch_.draw(model, index, {begin, end}, px(kColumnPx));
}

void ActivityDetails::draw_kernel(const Model& model, const ActivityRef& ref,
                                  const ActivityRow& row) {
  const uint32_t name = row.spans.item(ref.index);
  const int64_t begin = row.spans.begin_ns(ref.index);
  const auto length = static_cast<double>(row.spans.end_ns(ref.index) - begin);
  {
    const WithFont bold(fonts().bold);
    text_wrapped(model.text[ref.process].kernel(name));
  }
  fact("ran", span_text(length), px(kColumnPx));
  fact("from", instant_of(model, begin, length), px(kColumnPx));
  fact("stream", fmt::format("{} on cuda:{}", stream_text(row.stream), row.device), px(kColumnPx));
  if (kernel_) {
    const Kernel& kernel = *kernel_;
    fact("grid",
         fmt::format("{} x {} x {} blocks of {} x {} x {} threads", kernel.grid_x, kernel.grid_y,
                     kernel.grid_z, kernel.block_x, kernel.block_y, kernel.block_z),
         px(kColumnPx));
    fact("per thread",
         fmt::format("{}, {} shared per block", counted(kernel.registers, "register"),
                     size_text(kernel.shared_bytes)),
         px(kColumnPx));
    if (kernel.local_memory_bytes != 0) {
      fact("local memory", size_text(kernel.local_memory_bytes), px(kColumnPx));
    }
    if (kernel.graph_node != 0) fact("CUDA graph", "launched by a graph", px(kColumnPx));
  }
  draw_memory(model, ref, row);
  ImGui::SeparatorText("Full name");
  const std::string whole(model.trace.processes[ref.process].names.string(name));
  ImGui::PushStyleColor(ImGuiCol_Text, paint(theme().dim));
  text_wrapped(whole);
  ImGui::PopStyleColor();
  if (ImGui::Button("Copy the name")) ImGui::SetClipboardText(whole.c_str());
}

// When each rank called it, and which rank the others waited for.
void ActivityDetails::draw_ranks() {
  if (parts_.size() < 2) return;
  ImGui::SeparatorText("On the ranks");
  const auto earlier = [](const Part& a, const Part& b) { return a.called_ns < b.called_ns; };
  const auto [early, late] = std::minmax_element(parts_.begin(), parts_.end(), earlier);
  text_wrapped(fmt::format("Rank {} called it last, {} after rank {}.", late->rank,
                           span_text(static_cast<double>(late->called_ns - early->called_ns)),
                           early->rank));
  for (const Part& p : parts_) {
    fact(fmt::format("rank {}", p.rank).c_str(),
         fmt::format("called {} after the first{}",
                     span_text(static_cast<double>(p.called_ns - early->called_ns)),
                     p.ran_ns == 0 ? ", kernel not recorded"
                                   : ", ran for " + span_text(static_cast<double>(p.took_ns))),
         px(kColumnPx));
  }
}

void ActivityDetails::draw_collective(const Model& model, const ActivityRef& ref,
                                      const ActivityRow& row) {
  const ProcessModel& process = model.trace.processes[ref.process];
  const NcclOperation& op = process.nccl[row.spans.item(ref.index)];
  {
    const WithFont bold(fonts().bold);
    text_wrapped(process.names.string(op.function));
  }
  draw_stuck(model, op);
  draw_operation(model, process, op);
  draw_ranks();
  if (!together_.empty()) {
    ImGui::SeparatorText("In the same kernel");
    for (size_t i = 0; i < std::min(together_.size(), kMostOfGroup); ++i) {
      const NcclOperation& other = process.nccl[together_[i]];
      text(
          fmt::format("{}  {}", process.names.string(other.function), size_text(other.size_bytes)));
    }
    if (together_.size() > kMostOfGroup) {
      text_dim(fmt::format("and {}", counted(together_.size() - kMostOfGroup, "more operation")));
    }
  }
  draw_memory(model, ref, row);
}

void ActivityDetails::draw(const Model& model, Selection& selection, const ActivityRef& ref) {
  if (ref.process >= model.activity.size() || ref.row >= model.activity[ref.process].rows.size() ||
      ref.index >= model.activity[ref.process].rows[ref.row].spans.size()) {
    return;
  }
  const ActivityRow& row = model.activity[ref.process].rows[ref.row];
  update(model, ref, row);
  if (ImGui::SmallButton("Zoom to it")) {
    const double begin = since_start(model, row.spans.begin_ns(ref.index));
    const double end = since_start(model, row.spans.end_ns(ref.index));
    const double room = std::max((end - begin) * 2, 1e3);
    selection.view.show(begin - room, end + room);
  }
  explain("Zoom to it, with some time before and after.");
  if (row.kind == ActivityKind::kKernels) {
    draw_kernel(model, ref, row);
  } else {
    draw_collective(model, ref, row);
  }
}

}  // namespace tidemark::view
