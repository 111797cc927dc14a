#include "viewer/panels/dialogs/export_panel.h"

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <filesystem>

#include "analysis/wording.h"
#include "collector/output_guard.h"
#include "export/perfetto/perfetto_export.h"
#include "viewer/model/ticks.h"
#include "viewer/widgets/dialog.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

// ui.perfetto.dev opens files of this size without problems.
constexpr uint64_t kMostBytes = uint64_t{1} << 30;

TimeRange chosen_time(const Model& model, const Selection& selection) {
  return selection.highlights.measure ? *selection.highlights.measure
                                      : absolute_range(model, selection.view.range());
}

std::string write_file(const std::shared_ptr<const Model>& model, const ExportOptions& options,
                       const std::string& path) {
  if (const Status allowed = check_output(path, {&model->trace.path, 1}); !allowed) {
    return allowed.error().message;
  }
  const auto done = export_perfetto({model->trace, model->source->readers}, options, path);
  if (!done) return done.error().message;
  std::string message =
      fmt::format("saved {} ({}); open it in ui.perfetto.dev", path, size_text(done->bytes));
  for (const std::string& note : done->notes) message += "; " + note;
  return message;
}

}  // namespace

void ExportPanel::show(const Model& model, const Selection& selection) {
  open_ = true;
  only_time = selection.highlights.measure.has_value();
  only_rank = false;
  std::string name = std::filesystem::path(model.trace.path).filename().string();
  if (name.empty())
    name = std::filesystem::path(model.trace.path).parent_path().filename().string();
  for (const char* end : {".tmk", ".pickle.gz", ".pickle"}) {
    if (name.ends_with(end)) name.resize(name.size() - std::string_view(end).size());
  }
  name = (name.empty() ? "trace" : name) + ".pftrace";
  path[name.copy(path, sizeof path - 1)] = '\0';
}

void ExportPanel::start(const std::shared_ptr<const Model>& model, const Selection& selection) {
  ExportOptions options;
  options.max_bytes = kMostBytes;
  if (only_time) options.time = chosen_time(*model, selection);
  if (only_rank && selection.cursor.lane() < model->lanes.size()) {
    options.ranks = {model->process_of(model->lanes[selection.cursor.lane()]).info.rank};
  }
  working_ = true;
  work_.wish(
      [model, options, file = std::string(path)] { return write_file(model, options, file); },
      false);
}

std::string ExportPanel::draw(const std::shared_ptr<const Model>& model,
                              const Selection& selection) {
  work_.poll();
  std::string outcome;
  if (working_ && !work_.busy()) {
    working_ = false;
    open_ = false;
    outcome = work_.value();
  }
  if (!open_ || model == nullptr) return outcome;
  if (begin_dialog("Export for Perfetto", &open_, {px(460), 0})) {
    if (model->source == nullptr) {
      text_wrapped("This trace was not read from a file and cannot be exported.");
    } else {
      const VisibleRange time = since_start(*model, chosen_time(*model, selection));
      ImGui::Checkbox(
          fmt::format("only the time {} ({})",
                      selection.highlights.measure ? "measured" : "in view", span_text(time.span()))
              .c_str(),
          &only_time);
      const int64_t rank = selection.cursor.lane() < model->lanes.size()
                               ? model->process_of(model->lanes[selection.cursor.lane()]).info.rank
                               : -1;
      if (rank >= 0) ImGui::Checkbox(fmt::format("only rank {}", rank).c_str(), &only_rank);
      ImGui::SetNextItemWidth(-1);
      ImGui::InputText("##path", path, sizeof path);
      ImGui::BeginDisabled(working_ || path[0] == '\0');
      if (ImGui::Button(working_ ? "Writing..." : "Save")) start(model, selection);
      ImGui::EndDisabled();
    }
  }
  end_dialog();
  return outcome;
}

}  // namespace tidemark::view
