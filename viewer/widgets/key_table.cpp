#include "viewer/widgets/key_table.h"

#include <algorithm>

namespace tidemark::view {

namespace {

constexpr bool kRepeats = true;

constexpr KeyLine kLines[] = {
    {nullptr, "Time"},
    {"wheel, W / S",
     "zoom in and out at the mouse",
     {{Command::kZoomIn, ImGuiKey_W, kRepeats}, {Command::kZoomOut, ImGuiKey_S, kRepeats}}},
    {"drag, A / D",
     "move left and right",
     {{Command::kLeft, ImGuiKey_A, kRepeats}, {Command::kRight, ImGuiKey_D, kRepeats}}},
    {"F", "show the whole run, and the stack in its whole height", {{Command::kWhole, ImGuiKey_F}}},
    {"drag in the overview", "move the visible range"},
    {"click", "move the cursor here"},
    {"shift + drag", "measure duration, growth and peak"},
    {"click on the number of a step", "measure this step, or the validation"},
    {"Z", "zoom to the measured range", {{Command::kZoomToMeasure, ImGuiKey_Z}}},
    {"left / right",
     "one event back or forward (with shift: 100)",
     {{Command::kEventBack, ImGuiKey_LeftArrow, kRepeats},
      {Command::kEventOn, ImGuiKey_RightArrow, kRepeats},
      {Command::kEventsBack, ImGuiMod_Shift | ImGuiKey_LeftArrow, kRepeats},
      {Command::kEventsOn, ImGuiMod_Shift | ImGuiKey_RightArrow, kRepeats}}},
    {"ctrl + wheel", "scroll through the ranks; in the stack: zoom the height"},
    {nullptr, "Navigation"},
    {"P", "go to the peak", {{Command::kPeak, ImGuiKey_P}}},
    {"N / B",
     "go to the next or previous out-of-memory error",
     {{Command::kNextOom, ImGuiKey_N, kRepeats}, {Command::kPreviousOom, ImGuiKey_B, kRepeats}}},
    {"C", "compare from here; press again to stop", {{Command::kCompare, ImGuiKey_C}}},
    {"ctrl + click on a rank", "overlay that rank on the selected one"},
    {"/", "search stacks and annotations", {{Command::kSearch, ImGuiKey_Slash}}},
    {"Esc", "clear search, measurement and comparison", {{Command::kClear, ImGuiKey_Escape}}},
    {nullptr, "Stack"},
    {"click", "select the block in every panel"},
    {"ctrl + click", "compare from this instant"},
    {"shift + drag", "what was allocated, freed and kept in this time"},
    {"click in the legend", "show only this group (with ctrl: hide or show it)"},
    {nullptr, "Flame graph"},
    {"click", "zoom to a function; in rows: expand or collapse it"},
    {"right click, Backspace", "zoom out one level", {{Command::kFlameOut, ImGuiKey_Backspace}}},
    {nullptr, "Program"},
    {"1 to 9, 0", "bring a panel to the front"},
    {"ctrl + O",
     "open a trace, or drop a file on the window",
     {{Command::kOpen, ImGuiMod_Ctrl | ImGuiKey_O}}},
    {"ctrl + shift + O",
     "open a second trace to compare, or drop it with shift",
     {{Command::kOpenOther, ImGuiMod_Ctrl | ImGuiMod_Shift | ImGuiKey_O}}},
    {"ctrl + E",
     "export the trace, the visible time or a rank",
     {{Command::kExport, ImGuiMod_Ctrl | ImGuiKey_E}}},
    {"F5", "reload the file; view and comparison stay", {{Command::kReload, ImGuiKey_F5}}},
    {"T", "switch between dark and light", {{Command::kTheme, ImGuiKey_T}}},
    {"F12", "save a screenshot of the window", {{Command::kPicture, ImGuiKey_F12}}},
    {"F1, ?",
     "show all keys",
     {{Command::kHelp, ImGuiKey_F1}, {Command::kHelp, ImGuiMod_Shift | ImGuiKey_Slash}}},
    {"ctrl + Q", "quit", {{Command::kQuit, ImGuiMod_Ctrl | ImGuiKey_Q}}},
};

ImGuiKeyChord modifiers_now() {
  return ImGui::GetIO().KeyMods & ImGuiMod_Mask_;
}

}  // namespace

std::span<const KeyLine> key_lines() {
  return kLines;
}

bool pressed(Command command) {
  for (const KeyLine& line : kLines) {
    for (const KeyBinding& b : line.bindings) {
      if (b.command != command || command == Command::kNone) continue;
      const auto key = static_cast<ImGuiKey>(b.chord & ~ImGuiMod_Mask_);
      const bool held = (b.chord & ImGuiMod_Mask_) == modifiers_now();
      if (held && ImGui::IsKeyPressed(key, b.repeats)) return true;
    }
  }
  return false;
}

int panel_pressed(int count) {
  if (modifiers_now() != 0) return -1;
  for (int i = 0; i < std::min(count, 10); ++i) {
    if (ImGui::IsKeyPressed(static_cast<ImGuiKey>(ImGuiKey_0 + (i + 1) % 10), false)) return i;
  }
  return -1;
}

std::string shortcut(Command command) {
  for (const KeyLine& line : kLines) {
    for (const KeyBinding& b : line.bindings) {
      if (b.command != command) continue;
      std::string name;
      if ((b.chord & ImGuiMod_Ctrl) != 0) name += "Ctrl+";
      if ((b.chord & ImGuiMod_Shift) != 0) name += "Shift+";
      return name + ImGui::GetKeyName(static_cast<ImGuiKey>(b.chord & ~ImGuiMod_Mask_));
    }
  }
  return "";
}

}  // namespace tidemark::view
