#include "viewer/panels/dialogs/open_panel.h"

#include <imgui.h>

#include <algorithm>
#include <cstdio>

#include "analysis/wording.h"
#include "viewer/widgets/dialog.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

namespace fs = std::filesystem;

bool is_input(const std::string& name) {
  for (const char* end : {".tmk", ".pickle", ".pickle.gz", ".pkl", ".pkl.gz"}) {
    if (name.ends_with(end)) return true;
  }
  return false;
}

}  // namespace

void OpenPanel::show() {
  open_ = true;
  ahead.ask();
  std::error_code error;
  if (folder_.empty()) folder_ = fs::current_path(error);
  read_folder();
}

void OpenPanel::read_folder() {
  entries_.clear();
  error_.clear();
  std::error_code error;
  for (fs::directory_iterator it(folder_, fs::directory_options::skip_permission_denied, error),
       end;
       !error && it != end; it.increment(error)) {
    Entry e;
    e.name = it->path().filename().string();
    if (e.name.starts_with(".")) continue;
    std::error_code ignored;
    e.folder = it->is_directory(ignored);
    if (!e.folder && !is_input(e.name)) continue;
    if (!e.folder) e.bytes = it->file_size(ignored);
    e.changed = it->last_write_time(ignored);
    entries_.push_back(std::move(e));
  }
  if (error) error_ = folder_.string() + ": " + error.message();
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    if (a.folder != b.folder) return a.folder;
    return a.folder ? a.name < b.name : a.changed > b.changed;
  });
  std::snprintf(typed_, sizeof typed_, "%s", folder_.c_str());
}

std::optional<std::string> OpenPanel::draw_entries() {
  std::optional<std::string> chosen;
  fs::path enter;
  ImGui::BeginChild("##entries", {0, -ImGui::GetFrameHeightWithSpacing()});
  if (folder_.has_parent_path() && ImGui::Selectable("..")) enter = folder_.parent_path();
  for (const Entry& e : entries_) {
    const std::string label = e.folder ? e.name + "/" : e.name;
    if (ImGui::Selectable(label.c_str())) {
      if (e.folder) {
        enter = folder_ / e.name;
      } else {
        chosen = (folder_ / e.name).string();
      }
    }
    if (e.folder) continue;
    ImGui::SameLine();
    text_right(size_text(e.bytes));
  }
  if (entries_.empty()) text_dim("No traces (.tmk) or snapshots (.pickle) in this folder.");
  ImGui::EndChild();
  if (!enter.empty()) {
    folder_ = enter;
    read_folder();
  }
  return chosen;
}

std::optional<std::string> OpenPanel::draw() {
  if (!open_) return std::nullopt;
  std::optional<std::string> chosen;
  if (begin_dialog("Open a trace", &open_, {px(640), px(480)})) {
    ImGui::SetNextItemWidth(-1);
    ahead.before_field();
    const bool entered =
        ImGui::InputText("##path", typed_, sizeof typed_, ImGuiInputTextFlags_EnterReturnsTrue);
    ahead.after_field();
    if (entered) {
      std::error_code error;
      if (fs::is_directory(typed_, error)) {
        folder_ = typed_;
        read_folder();
      } else {
        chosen = typed_;
      }
    }
    if (!error_.empty()) text_in_colour(theme().bad, error_);
    if (!chosen) chosen = draw_entries();
    if (ImGui::Button("Open the whole folder")) chosen = folder_.string();
    explain("Opens all traces of the folder together, as the ranks of one job.");
    ImGui::SameLine();
    if (ImGui::Button("Cancel")) open_ = false;
  }
  end_dialog();
  if (chosen) open_ = false;
  return chosen;
}

}  // namespace tidemark::view
