// Every key and gesture of the program in one place: for input, for the menus, and for the page of
// keys. docs/viewer.md has the same table.
#pragma once

#include <imgui.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tidemark::view {

enum class Command : uint8_t {
  kNone,
  kZoomIn,
  kZoomOut,
  kLeft,
  kRight,
  kWhole,
  kZoomToMeasure,
  kEventBack,
  kEventOn,
  kEventsBack,
  kEventsOn,
  kPeak,
  kNextOom,
  kPreviousOom,
  kCompare,
  kSearch,
  kClear,
  kFlameOut,
  kOpen,
  kOpenOther,
  kExport,
  kReload,
  kTheme,
  kPicture,
  kHelp,
  kQuit,
};

struct KeyBinding {
  Command command = Command::kNone;
  ImGuiKeyChord chord = 0;
  bool repeats = false;  // while it is held
};

struct KeyLine {
  const char* keys;  // null: a heading
  const char* meaning;
  KeyBinding bindings[4] = {};
};

std::span<const KeyLine> key_lines();

// Whether a key of the command went down in this frame. Modifiers must be exactly its own.
bool pressed(Command command);
// The panel whose number was pressed, from 0; -1: none.
int panel_pressed(int count);
// As menus show it: "Ctrl+O".
std::string shortcut(Command command);

}  // namespace tidemark::view
