#include "viewer/model/trace/finding_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "analysis/wording.h"
#include "export/report/rank_report.h"
#include "export/report/report_wording.h"

namespace tidemark::view {

namespace {

bool same_text(const Finding& a, const Finding& b) {
  const auto same_advice = [](const Advice& x, const Advice& y) {
    return x.action == y.action && x.detail == y.detail;
  };
  return a.id == b.id && a.severity == b.severity && a.summary == b.summary &&
         a.frames == b.frames &&
         std::equal(a.advice.begin(), a.advice.end(), b.advice.begin(), b.advice.end(),
                    same_advice);
}

// Groups of equal elements, in the order of their first members.
template <typename Same>
std::vector<std::vector<size_t>> groups(size_t count, const Same& same) {
  std::vector<std::vector<size_t>> out;
  for (size_t i = 0; i < count; ++i) {
    const auto group = std::find_if(out.begin(), out.end(),
                                    [&](const auto& members) { return same(members[0], i); });
    if (group == out.end()) {
      out.push_back({i});
    } else {
      group->push_back(i);
    }
  }
  return out;
}

}  // namespace

std::optional<size_t> finding_to_open(const Model& model) {
  for (const char* severity : {kError, kWarning}) {
    for (size_t i = 0; i < model.report.findings.size(); ++i) {
      const Finding& f = model.report.findings[i];
      if (f.severity == severity && f.id != "other_process") return i;
    }
  }
  return std::nullopt;
}

std::vector<SameFindings> fold_findings(const std::vector<Finding>& findings) {
  return groups(findings.size(),
                [&](size_t a, size_t b) { return same_text(findings[a], findings[b]); });
}

std::string place_text(const Report& report, const SameFindings& same) {
  const std::vector<Finding>& findings = report.findings;
  std::set<int64_t> ranks;
  std::set<int64_t> devices;
  for (const size_t i : same) {
    if (findings[i].rank >= 0) ranks.insert(findings[i].rank);
    devices.insert(findings[i].device);
  }
  if (ranks.empty()) {
    return same.size() == 1 ? place_text(report, findings[same.front()])
                            : counted(same.size(), "device");
  }
  std::string text = ranks_text({ranks.begin(), ranks.end()});
  // Each rank numbers its own devices: those of several say little.
  if (ranks.size() == 1 && devices.size() == 1) text += fmt::format(", cuda:{}", *devices.begin());
  return text;
}

std::vector<SameOoms> fold_ooms(const Model& model) {
  // A program that catches the error and tries again can have thousands: only neighbours are
  // compared.
  std::vector<SameOoms> out;
  const auto same = [&](const OomPoint& a, const OomPoint& b) {
    const auto lines = [&](const OomPoint& o) -> const std::string& {
      return model.text_of(model.lanes[o.lane]).headline(o.stack);
    };
    return a.layer == b.layer && a.requested_bytes == b.requested_bytes && lines(a) == lines(b);
  };
  for (size_t i = 0; i < model.ooms.size(); ++i) {
    if (!out.empty() && same(model.ooms[out.back().front()], model.ooms[i])) {
      out.back().push_back(i);
    } else {
      out.push_back({i});
    }
  }
  return out;
}

const Finding* finding_with_advice(const Model& model, uint32_t index) {
  if (index >= model.lanes.size()) return nullptr;
  const Lane& lane = model.lanes[index];
  const ProcessModel& process = model.process_of(lane);
  for (const Finding& f : model.report.findings) {
    if (f.severity == kInfo || f.advice.empty() || f.device != lane.device()) continue;
    if (f.concerns(process.info.rank, process.info.pid, process.file)) return &f;
  }
  return nullptr;
}

std::string why_no_advice(const Model& model, uint32_t lane, uint64_t requested_bytes) {
  if (!model.report_ready) return "Still being analysed.";
  const Lane* const of = lane < model.lanes.size() ? &model.lanes[lane] : nullptr;
  if (of != nullptr && of->total_bytes != 0 && requested_bytes > of->total_bytes) {
    return fmt::format(
        "No advice: this request alone is larger than the card, which has {}. Check the sizes of "
        "the tensors in the line above.",
        size_text(of->total_bytes));
  }
  if (of != nullptr && of->of_driver) {
    return "No advice: the trace has the driver's allocations, but not the tensors inside of them, "
           "so nothing says which could be smaller. The memory map shows which owner and which "
           "line hold the memory.";
  }
  if (!model.categories_known) {
    return "No advice: the trace does not show which blocks are parameters, activations or "
           "optimizer state. Record a few whole steps for advice; until then, the flame graph "
           "shows which lines hold the memory.";
  }
  return "No advice: none of the known changes (smaller batch, 16 bits, checkpointing, sharding, "
         "allocator settings) would have saved memory here. The flame graph shows which lines hold "
         "the memory.";
}

}  // namespace tidemark::view
