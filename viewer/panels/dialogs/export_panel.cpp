#include "viewer/panels/dialogs/export_panel.h"

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>
#include <vector>

#include "analysis/wording.h"
#include "collector/output_guard.h"
#include "export/page/page_export.h"
#include "export/perfetto/perfetto_export.h"
#include "export/snapshot/snapshot_export.h"
#include "export/tables/csv_tables.h"
#include "export/tables/sqlite_tables.h"
#include "viewer/model/ticks.h"
#include "viewer/widgets/dialog.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

namespace fs = std::filesystem;

// ui.perfetto.dev opens files of this size without problems.
constexpr uint64_t kPerfettoBytes = uint64_t{1} << 30;

struct FormatText {
  const char* name;
  const char* ending;
  const char* opens;
};

// By ExportFormat.
constexpr FormatText kFormats[] = {
    {"Perfetto", ".pftrace", "open it in ui.perfetto.dev"},
    {"SQLite", ".db", "query it with sqlite3"},
    {"CSV (a folder)", ".csv", "one file per table"},
    {"PyTorch snapshot", ".pickle", "open it in pytorch.org/memory_viz"},
    {"Page (HTML)", ".html", "open it in a browser"},
};

const FormatText& text_of(ExportFormat format) {
  return kFormats[static_cast<size_t>(format)];
}

TimeRange chosen_time(const Model& model, const Selection& selection) {
  return selection.highlights.measure ? *selection.highlights.measure
                                      : absolute_range(model, selection.view.range());
}

template <size_t kSize>
void put(char (&buffer)[kSize], const std::string& value) {
  buffer[value.copy(buffer, kSize - 1)] = '\0';
}

std::string without_ending(std::string name) {
  for (const char* end : {".tmk", ".pickle.gz", ".pickle", ".pftrace", ".db", ".csv", ".html"}) {
    if (name.ends_with(end)) name.resize(name.size() - std::string_view(end).size());
  }
  return name.empty() ? "trace" : name;
}

// The number of the process under the cursor, from 1; 0: there is no choice.
uint32_t selected_process(const Model& model, const Selection& selection) {
  const uint32_t lane = selection.cursor.lane();
  const bool choice = lane < model.lanes.size() && model.trace.processes.size() > 1;
  return choice ? model.lanes[lane].process + 1 : 0;
}

Status check_outputs(ExportFormat format, const std::string& path,
                     std::span<const std::string> open_traces) {
  std::vector<std::string> files{path};
  if (format == ExportFormat::kCsv) {
    for (const std::string& table : csv_file_names()) files.push_back(path + '/' + table);
  }
  for (const std::string& file : files) {
    if (Status allowed = check_output(file, open_traces); !allowed) return allowed;
  }
  return {};
}

}  // namespace

ExportPanel::ExportPanel() {
  if (Result<std::string> found = find_viewer_page(); found) page = std::move(*found);
}

void ExportPanel::show(const Model& model, const Selection& selection) {
  open_ = true;
  error_.clear();
  asked_about_.clear();
  only_time = selection.highlights.measure.has_value();
  only_rank = false;
  std::error_code error;
  if (folder[0] == '\0') put(folder, fs::current_path(error).string());
  put(name, without_ending(short_name(model)) + text_of(format_).ending);
}

void ExportPanel::set_format(ExportFormat format) {
  format_ = format;
  put(name, without_ending(name) + text_of(format).ending);
}

std::string ExportPanel::target() const {
  return (fs::path(folder) / name).string();
}

ExportPanel::Outcome ExportPanel::write(const std::shared_ptr<const Model>& model,
                                        ExportFormat format, const ExportOptions& options,
                                        const std::string& page, const std::string& path) {
  const ExportInput input{model->trace, model->source->readers,
                          model->report_ready ? &model->report : nullptr};
  const auto done = format == ExportFormat::kPerfetto ? export_perfetto(input, options, path)
                    : format == ExportFormat::kSqlite ? export_sqlite(input, options, path)
                    : format == ExportFormat::kCsv    ? export_csv(input, options, path)
                    : format == ExportFormat::kPage ? export_page(input, options, {page, ""}, path)
                                                    : export_snapshot(input, options, path);
  if (!done) return {false, done.error().message};
  std::string message =
      fmt::format("saved {} ({}); {}", path, size_text(done->bytes), text_of(format).opens);
  for (const std::string& note : done->notes) message += "; " + note;
  return {true, message};
}

void ExportPanel::save(const std::shared_ptr<const Model>& model, const Selection& selection) {
  error_.clear();
  const std::string path = target();
  std::vector<std::string> open_traces{model->trace.path};
  if (const auto other = selection.comparison.other()) open_traces.push_back(other->trace.path);
  if (const Status status = check_outputs(format_, path, open_traces); !status) {
    error_ = status.error().message;
    return;
  }
  std::error_code ignored;
  if (fs::exists(path, ignored) && asked_about_ != path) {
    asked_about_ = path;
    return;
  }
  asked_about_.clear();
  start(model, selection);
}

void ExportPanel::start(const std::shared_ptr<const Model>& model, const Selection& selection) {
  ExportOptions options;
  if (format_ == ExportFormat::kPerfetto) options.max_bytes = kPerfettoBytes;
  if (only_time) options.time = chosen_time(*model, selection);
  const uint32_t process = selected_process(*model, selection);
  if (only_rank && process != 0) options.processes = {process};
  working_ = true;
  work_.wish([model, format = format_, options, page = page,
              path = target()] { return write(model, format, options, page, path); },
             false);
}

void ExportPanel::draw_choices(const Model& model, const Selection& selection) {
  int chosen = static_cast<int>(format_);
  const char* names[std::size(kFormats)];
  for (size_t i = 0; i < std::size(kFormats); ++i) names[i] = kFormats[i].name;
  ImGui::SetNextItemWidth(px(190));
  const size_t offered = std::size(kFormats) - (page.empty() ? 1 : 0);
  if (ImGui::Combo("##format", &chosen, names, static_cast<int>(offered))) {
    set_format(static_cast<ExportFormat>(chosen));
  }
  ImGui::SameLine();
  text_dim(text_of(format_).opens);
  const VisibleRange time = since_start(model, chosen_time(model, selection));
  ImGui::Checkbox(
      fmt::format("only the time {} ({})", selection.highlights.measure ? "measured" : "in view",
                  span_text(time.span()))
          .c_str(),
      &only_time);
  if (const uint32_t process = selected_process(model, selection); process != 0) {
    const Process& info = model.trace.processes[process - 1].info;
    const std::string label = info.rank >= 0 ? fmt::format("only rank {}", info.rank)
                              : info.pid != 0
                                  ? fmt::format("only process {}, pid {}", process, info.pid)
                                  : fmt::format("only process {}", process);
    ImGui::Checkbox(label.c_str(), &only_rank);
  }
}

void ExportPanel::draw_place(const Model& model) {
  const float label = px(60);
  if (!kInBrowser) draw_folder(model, label);
  ImGui::AlignTextToFramePadding();
  text_dim("name");
  ImGui::SameLine(label);
  ImGui::SetNextItemWidth(-1);
  ImGui::InputText("##name", name, sizeof name);
}

void ExportPanel::draw_folder(const Model& model, float label) {
  ImGui::AlignTextToFramePadding();
  text_dim("folder");
  ImGui::SameLine(label);
  ImGui::SetNextItemWidth(-ImGui::GetFrameHeight());
  ImGui::InputText("##folder", folder, sizeof folder);
  ImGui::SameLine(0, 0);
  if (ImGui::BeginCombo("##folders", "", ImGuiComboFlags_NoPreview)) {
    std::error_code error;
    const char* home = std::getenv("HOME");
    const fs::path places[] = {fs::current_path(error),
                               fs::absolute(model.trace.path, error).parent_path(),
                               fs::path(home == nullptr ? "/tmp" : home)};
    for (const fs::path& place : places) {
      if (ImGui::Selectable(place.c_str())) put(folder, place.string());
    }
    ImGui::EndCombo();
  }
  explain("Current folder, folder of the trace, home folder.");
}

void ExportPanel::draw_buttons(const std::shared_ptr<const Model>& model,
                               const Selection& selection) {
  if (asked_about_ != target()) asked_about_.clear();
  if (asking()) {
    ImGui::PushStyleColor(ImGuiCol_Text, paint(theme().warning));
    text_wrapped(asked_about_ + " exists already. Overwrite it?");
    ImGui::PopStyleColor();
  }
  if (!error_.empty()) {
    ImGui::PushStyleColor(ImGuiCol_Text, paint(theme().bad));
    text_wrapped(error_);
    ImGui::PopStyleColor();
  }
  ImGui::BeginDisabled(working_ || name[0] == '\0');
  if (ImGui::Button(working_ ? "Writing..." : asking() ? "Overwrite" : "Save")) {
    save(model, selection);
  }
  ImGui::EndDisabled();
  ImGui::SameLine();
  if (ImGui::Button("Cancel")) open_ = false;
}

std::string ExportPanel::draw(const std::shared_ptr<const Model>& model,
                              const Selection& selection) {
  work_.poll();
  std::string outcome;
  if (working_ && !work_.busy()) {
    working_ = false;
    const Outcome& made = work_.value();
    (made.written ? outcome : error_) = made.message;
    if (made.written) open_ = false;
    if (made.written && on_written) on_written(target());
  }
  if (!open_ || model == nullptr) return outcome;
  if (begin_dialog(kTitle, &open_, {px(520), 0})) {
    if (model->source == nullptr) {
      text_wrapped("This trace was not read from a file and cannot be exported.");
    } else {
      draw_choices(*model, selection);
      draw_place(*model);
      draw_buttons(model, selection);
    }
  }
  end_dialog();
  return outcome;
}

}  // namespace tidemark::view
