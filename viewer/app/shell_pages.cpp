// What the program draws around its panels: menu, banners, status line, and the pages that it shows
// without a trace.
#include <fmt/format.h>
#include <imgui.h>
#include <imgui_internal.h>

#include <algorithm>
#include <utility>

#include "analysis/wording.h"
#include "export/report/report_wording.h"
#include "proto/base/work.h"
#include "viewer/app/shell.h"
#include "viewer/model/ticks.h"
#include "viewer/widgets/fonts.h"
#include "viewer/widgets/key_table.h"
#include "viewer/widgets/text.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

constexpr ImGuiWindowFlags kPageFlags =
    ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoMove | ImGuiWindowFlags_NoDocking |
    ImGuiWindowFlags_NoSavedSettings | ImGuiWindowFlags_NoBringToFrontOnFocus;

// A strip across the window, below the menu or at the bottom.
bool begin_strip(const char* id, ImGuiDir side, Rgb colour, int alpha) {
  const float height = ImGui::GetFrameHeight() + px(4);
  ImGui::PushStyleColor(ImGuiCol_WindowBg, paint(colour, alpha));
  ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, ImVec2(px(12), px(2)));
  ImGui::PushStyleVar(ImGuiStyleVar_WindowRounding, 0.0F);
  const bool open = ImGui::BeginViewportSideBar(
      id, ImGui::GetMainViewport(), side, height,
      ImGuiWindowFlags_NoScrollbar | ImGuiWindowFlags_NoScrollWithMouse |
          ImGuiWindowFlags_NoFocusOnAppearing | ImGuiWindowFlags_NoSavedSettings);
  ImGui::PopStyleVar(2);
  ImGui::PopStyleColor();
  if (open) ImGui::AlignTextToFramePadding();
  return open;
}

// Shows a panel without giving it the focus: of all groups of tabs, ImGui would show only the panel
// that got it last.
void select_tab(const char* title) {
  const ImGuiWindow* window = ImGui::FindWindowByName(title);
  if (window == nullptr || window->DockNode == nullptr) return;
  if (ImGuiTabBar* tabs = window->DockNode->TabBar; tabs != nullptr) {
    tabs->SelectedTabId = window->TabId;
  }
}

// The window is cleared in the colour of panels, so those in it need no background of their own: it
// would be most of what a software renderer draws.
bool is_docked(const char* title) {
  const ImGuiWindow* window = ImGui::FindWindowByName(title);
  return window != nullptr && window->DockNode != nullptr &&
         ImGui::DockNodeGetRootNode(window->DockNode)->IsDockSpace();
}

bool begin_page(const char* id) {
  const ImGuiViewport* viewport = ImGui::GetMainViewport();
  ImGui::SetNextWindowPos(viewport->WorkPos);
  ImGui::SetNextWindowSize(viewport->WorkSize);
  ImGui::PushStyleVar(ImGuiStyleVar_WindowRounding, 0.0F);
  const bool open = ImGui::Begin(id, nullptr, kPageFlags);
  ImGui::PopStyleVar();
  return open;
}

}  // namespace

void Shell::draw_menu() {
  if (!ImGui::BeginMainMenuBar()) return;
  {
    const WithFont bold(fonts().bold);
    text_in_colour(theme().accent, "tidemark");
  }
  const auto item = [](const char* name, Command command, bool enabled = true) {
    return ImGui::MenuItem(name, shortcut(command).c_str(), false, enabled);
  };
  const bool trace = model_ != nullptr;
  if (ImGui::BeginMenu("File")) {
    if (item("Open...", Command::kOpen)) dialogs_.ask_for_file(false);
    if (item("Compare with...", Command::kOpenOther, trace)) dialogs_.ask_for_file(true);
    if (!kInBrowser && ImGui::BeginMenu("Recent", !config_.recent.empty())) {
      const std::vector<std::string> recent = config_.recent;
      for (const std::string& path : recent) {
        if (ImGui::MenuItem(path.c_str())) open(path);
      }
      ImGui::EndMenu();
    }
    if (kInBrowser) {
      ImGui::MenuItem("Recent, reload, follow: only in tidemark-view", nullptr, false, false);
    } else {
      if (item("Reload", Command::kReload, trace)) reload();
      if (ImGui::MenuItem("Follow as it grows", nullptr, follow_)) follow(!follow_);
    }
    if (item("Export...", Command::kExport, trace)) {
      dialogs_.exporter.show(*model_, selection_);
    }
    if (item("Save a screenshot", Command::kPicture)) picture_wanted = true;
    if (!kInBrowser) {
      ImGui::Separator();
      if (item("Quit", Command::kQuit)) quit_wanted = true;
    }
    ImGui::EndMenu();
  }
  if (ImGui::BeginMenu("View")) {
    const std::string key = shortcut(Command::kTheme);
    if (ImGui::MenuItem("Dark", key.c_str(), theme().dark)) set_dark(true);
    if (ImGui::MenuItem("Light", key.c_str(), !theme().dark)) set_dark(false);
    ImGui::Separator();
    int number = 0;
    for (const Panels::Entry& panel : Panels::entries()) {
      const std::string key_of_panel = fmt::format("{}", ++number % 10);
      if (ImGui::MenuItem(panel.title, key_of_panel.c_str())) front_ = number - 1;
    }
    ImGui::Separator();
    if (ImGui::MenuItem("Reset layout")) layout_wanted_ = true;
    ImGui::EndMenu();
  }
  if (ImGui::BeginMenu("Help")) {
    if (item("Keys", Command::kHelp)) dialogs_.help = true;
    ImGui::EndMenu();
  }
  if (model_ != nullptr) {
    const std::string& path = model_->trace.path;
    const std::string name = path.substr(path.find_last_of('/') + 1);
    text_dim(fitted(name, ImGui::GetContentRegionAvail().x));
    explain(path.c_str());
  }
  ImGui::EndMainMenuBar();
}

void Shell::draw_banners() {
  if (!error_.empty()) {
    if (begin_strip("##error", ImGuiDir_Up, theme().bad, 70)) {
      // The error on the left, what to do about it on the right.
      const ImGuiStyle& style = ImGui::GetStyle();
      const float buttons = width_of("Open another...") + width_of("x") + 4 * style.FramePadding.x +
                            2 * style.ItemSpacing.x;
      const float right = ImGui::GetContentRegionMax().x - buttons;
      text(fitted(error_, right - ImGui::GetCursorPosX()));
      explain(error_.c_str());
      ImGui::SameLine(right + style.ItemSpacing.x);
      if (ImGui::SmallButton("Open another...")) {
        error_.clear();
        dialogs_.ask_for_file(false);
      }
      ImGui::SameLine();
      if (ImGui::SmallButton("x")) error_.clear();
    }
    ImGui::End();
  }
  draw_losses();
}

void Shell::draw_losses() {
  if (model_ == nullptr) return;
  std::vector<std::string> losses = model_->losses;
  if (selection_.comparison.other() != nullptr) {
    for (const std::string& loss : selection_.comparison.other()->losses) {
      losses.push_back(name_beside(*selection_.comparison.other(), *model_) + ": " + loss);
    }
  }
  if (losses.empty()) return;
  if (begin_strip("##losses", ImGuiDir_Up, theme().warning, theme().dark ? 46 : 60)) {
    const size_t more = losses.size() - 1;
    const std::string rest = more == 0 ? "" : fmt::format("  (and {} more)", more);
    text_in_colour(theme().warning, "Incomplete:");
    ImGui::SameLine();
    const float room = ImGui::GetContentRegionAvail().x - width_of(rest) - px(6);
    const std::string label = fitted(losses.front(), room) + rest + "###loss";
    if (ImGui::Selectable(label.c_str())) {
      selection_.requests.panel = FindingsPanel::kTitle;
      panels_.findings.show_losses();
    }
    std::string all;
    for (const std::string& loss : losses) all += loss + "\n";
    explain(all.c_str());
  }
  ImGui::End();
}

std::string Shell::facts() const {
  // In the words of the report, without its number of events: that of a device follows, and they
  // are not the same.
  std::string facts;
  if (model_->report_ready) {
    static constexpr std::string_view kOver = " over ";
    const std::string text = events_text(model_->report);
    facts = text.substr(text.find(kOver) + kOver.size()) + "   ";
  }
  facts += counted(model_->lanes.size(), "device");
  if (const std::string event = selection_.cursor.event_text(*model_); !event.empty()) {
    facts += fmt::format("   {}: {}", model_->lanes[selection_.cursor.lane()].name, event);
  }
  if (follow_) facts += "   following the file";
  if (other_loader_.busy()) facts += "   reading " + other_loader_.path();
  if (reloading_) facts += "   reloading ...";
  if (!model_->report_ready) facts += "   analysing ...";
  return facts;
}

void Shell::draw_status() {
  if (begin_strip("##status", ImGuiDir_Down, theme().background, 255)) {
    if (!notice.empty()) {
      text_in_colour(theme().accent, fitted(notice, ImGui::GetContentRegionAvail().x));
      ImGui::SameLine(0, px(24));
    }
    if (model_ != nullptr) {
      const std::string all = facts();
      const float room = ImGui::GetContentRegionAvail().x;
      text_dim(fitted(all, room));
      if (ImGui::IsItemHovered()) {
        explain(
            fmt::format("The trace has {}, of all processes, as they were recorded. The events of "
                        "a device, which the axis numbers, are the changes of its memory: a free "
                        "is two of them if the block can be reused only later, and so is an "
                        "allocation for which memory was reserved; an error is none.",
                        counted(model_->events, "memory event"))
                .c_str());
      }
      static constexpr std::string_view kHint = "F1: keys";
      if (room > width_of(all) + width_of(kHint) + px(60)) {
        ImGui::SameLine();
        ImGui::PushStyleColor(ImGuiCol_Text, paint(theme().dim));
        text_right(kHint);
        ImGui::PopStyleColor();
      }
    }
  }
  ImGui::End();
}

void Shell::build_layout(unsigned int dockspace) {
  // What menu, banners and status leave in this frame; WorkSize is what they left in the one
  // before. The same layout then, whether or not frames without panels came first.
  const auto& viewport = *static_cast<ImGuiViewportP*>(ImGui::GetMainViewport());
  const ImVec2 size = viewport.GetBuildWorkRect().GetSize();
  ImGui::DockBuilderRemoveNode(dockspace);
  ImGui::DockBuilderAddNode(dockspace, ImGuiDockNodeFlags_DockSpace);
  ImGui::DockBuilderSetNodeSize(dockspace, size);
  ImGuiID top = 0;
  ImGuiID bottom = 0;
  ImGui::DockBuilderSplitNode(dockspace, ImGuiDir_Up, 0.5F, &top, &bottom);
  ImGuiID right = bottom;
  ImGuiID left = bottom;
  // A small window has all panels below the timeline in one group of tabs.
  if (size.x > px(980)) {
    ImGui::DockBuilderSplitNode(bottom, ImGuiDir_Right, 0.34F, &right, &left);
  }
  ImGui::DockBuilderDockWindow(TimelinePanel::kTitle, top);
  ImGui::DockBuilderDockWindow(StackPanel::kTitle, top);
  ImGui::DockBuilderDockWindow(RanksPanel::kTitle, top);
  for (const char* title :
       {MapPanel::kTitle, FlamePanel::kTitle, TablesPanel::kTitle, ComparePanel::kTitle}) {
    ImGui::DockBuilderDockWindow(title, left);
  }
  for (const char* title : {MomentPanel::kTitle, FindingsPanel::kTitle, DetailPanel::kTitle}) {
    ImGui::DockBuilderDockWindow(title, right);
  }
  ImGui::DockBuilderFinish(dockspace);
}

void Shell::draw_panels() {
  const ImGuiID dockspace = ImGui::GetID("tidemark-dock");
  const bool fresh = ImGui::DockBuilderGetNode(dockspace) == nullptr || layout_wanted_;
  if (fresh) {
    build_layout(dockspace);
    layout_wanted_ = false;
  }
  ImGui::PushStyleColor(ImGuiCol_WindowBg, 0);
  ImGui::DockSpaceOverViewport(
      dockspace, ImGui::GetMainViewport(),
      ImGuiDockNodeFlags_NoWindowMenuButton | ImGuiDockNodeFlags_NoCloseButton);
  ImGui::PopStyleColor();
  // In its first frames a layout, new or stored, has no tabs yet, or selects those that were
  // stored: requests wait.
  const ImGuiWindow* last = ImGui::FindWindowByName(Panels::entries().back().title);
  const ImGuiTabBar* tabs =
      last != nullptr && last->DockNode != nullptr ? last->DockNode->TabBar : nullptr;
  const bool undocked = last != nullptr && last->DockNode == nullptr && last->WasActive;
  const bool has_tabs = !fresh && (undocked || (tabs != nullptr && tabs->PrevFrameVisible >= 0));
  const PanelRequests requests =
      has_tabs ? std::exchange(selection_.requests, PanelRequests{}) : PanelRequests{};
  const char* wanted = requests.details ? DetailPanel::kTitle : requests.panel;
  if (front_ >= 0 && has_tabs) {
    wanted = Panels::entries()[static_cast<size_t>(std::exchange(front_, -1))].title;
  }
  // A stored layout may select its own tab once more in these frames.
  constexpr int kFramesToSettle = 6;
  if (wanted != nullptr) {
    settling_ = wanted;
    frames_to_settle_ = kFramesToSettle;
  } else if (frames_to_settle_ > 0) {
    --frames_to_settle_;
    const ImGuiWindow* window = ImGui::FindWindowByName(settling_);
    if (window != nullptr && window->DockNode != nullptr && !window->DockTabIsVisible) {
      wanted = settling_;
    }
  }
  if (requests.beside != nullptr) select_tab(requests.beside);
  // Whoever types, or answers a dialog, keeps the keyboard: findings may come at any time.
  const bool is_busy = ImGui::GetIO().WantTextInput || dialogs_.visible() ||
                       ImGui::IsPopupOpen(nullptr, ImGuiPopupFlags_AnyPopup);
  if (wanted != nullptr && is_busy) select_tab(std::exchange(wanted, nullptr));
  for (const Panels::Entry& panel : Panels::entries()) {
    const std::string_view title = panel.title;
    if (wanted != nullptr && title == wanted) ImGui::SetNextWindowFocus();
    // In the timeline and the stack the wheel zooms.
    ImGuiWindowFlags flags = title == TimelinePanel::kTitle || title == StackPanel::kTitle
                                 ? ImGuiWindowFlags_NoScrollbar | ImGuiWindowFlags_NoScrollWithMouse
                                 : 0;
    if (is_docked(panel.title)) flags |= ImGuiWindowFlags_NoBackground;
    if (ImGui::Begin(panel.title, nullptr, flags)) panel.draw(panels_, *model_, selection_);
    ImGui::End();
  }
  if (fresh) {
    // The first tab of each group is in front.
    for (const char* title : {MomentPanel::kTitle, MapPanel::kTitle, TimelinePanel::kTitle}) {
      is_busy ? select_tab(title) : ImGui::SetWindowFocus(title);
    }
  }
}

void Shell::draw_only() {
  if (begin_page("##only")) {
    {
      const WithFont title(fonts().title);
      text(only_->title);
    }
    only_->draw(panels_, *model_, selection_);
  }
  ImGui::End();
}

void Shell::draw_welcome() {
  if (begin_page("##welcome")) {
    const ImVec2 room = ImGui::GetContentRegionAvail();
    const float width = std::min(px(620), room.x);
    ImGui::SetCursorPos({std::max(0.0F, (room.x - width) / 2) + px(12), room.y * 0.22F});
    ImGui::BeginGroup();
    ImGui::PushTextWrapPos(ImGui::GetCursorPosX() + width - px(20));
    {
      const WithFont title(fonts().title);
      text_in_colour(theme().accent, "tidemark");
    }
    text_dim("Shows what used the memory of a GPU job: at the peak, at an error, at any time.");
    ImGui::Spacing();
    text(
        "Drop a trace (.tmk), a folder of traces or a PyTorch memory snapshot (.pickle) here, or "
        "open one.");
    ImGui::Spacing();
    if (ImGui::Button("Open...")) dialogs_.ask_for_file(false);
    ImGui::SameLine();
    if (ImGui::Button("Keys")) dialogs_.help = true;
    if (!config_.recent.empty()) {
      ImGui::Spacing();
      text_dim("Recent");
      const std::vector<std::string> recent = config_.recent;
      for (const std::string& path : recent) {
        const std::string label = fitted(path, width - px(40)) + "##" + path;
        if (ImGui::Selectable(label.c_str(), false, 0, {width - px(20), 0})) open(path);
      }
    }
    ImGui::PopTextWrapPos();
    ImGui::EndGroup();
  }
  ImGui::End();
}

void Shell::draw_loading() {
  if (begin_page("##loading")) {
    text(fitted(loader_.path(), ImGui::GetContentRegionAvail().x));
    ImGui::ProgressBar(static_cast<float>(loader_.progress()), {-1, 0}, loader_.stage().c_str());
    if (const auto preview = loader_.preview(); preview != nullptr) {
      panels_.timeline.draw_preview(*preview);
    }
  }
  ImGui::End();
}

}  // namespace tidemark::view
