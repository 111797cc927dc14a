// Input of the page, as the browser names it, to ImGui.
#include <emscripten.h>
#include <imgui.h>

#include <string_view>

namespace {

struct NamedKey {
  std::string_view name;  // KeyboardEvent.code
  ImGuiKey key;
};

constexpr NamedKey kKeys[] = {
    {"ArrowLeft", ImGuiKey_LeftArrow}, {"ArrowRight", ImGuiKey_RightArrow},
    {"ArrowUp", ImGuiKey_UpArrow},     {"ArrowDown", ImGuiKey_DownArrow},
    {"PageUp", ImGuiKey_PageUp},       {"PageDown", ImGuiKey_PageDown},
    {"Home", ImGuiKey_Home},           {"End", ImGuiKey_End},
    {"Insert", ImGuiKey_Insert},       {"Delete", ImGuiKey_Delete},
    {"Backspace", ImGuiKey_Backspace}, {"Tab", ImGuiKey_Tab},
    {"Enter", ImGuiKey_Enter},         {"NumpadEnter", ImGuiKey_KeypadEnter},
    {"Escape", ImGuiKey_Escape},       {"Space", ImGuiKey_Space},
    {"ShiftLeft", ImGuiKey_LeftShift}, {"ShiftRight", ImGuiKey_RightShift},
    {"ControlLeft", ImGuiKey_LeftCtrl}, {"ControlRight", ImGuiKey_RightCtrl},
    {"AltLeft", ImGuiKey_LeftAlt},     {"AltRight", ImGuiKey_RightAlt},
};

ImGuiKey numbered(ImGuiKey first, int steps) {
  return static_cast<ImGuiKey>(static_cast<int>(first) + steps);
}

// A key that types a letter is the key of that letter, wherever the keyboard has it.
ImGuiKey key_of(std::string_view code, std::string_view typed) {
  if (typed.size() == 1) {
    const char c = typed[0];
    if (c >= 'a' && c <= 'z') return numbered(ImGuiKey_A, c - 'a');
    if (c >= 'A' && c <= 'Z') return numbered(ImGuiKey_A, c - 'A');
    if (c >= '0' && c <= '9') return numbered(ImGuiKey_0, c - '0');
    if (c == '/' || c == '?') return ImGuiKey_Slash;
  }
  if (code.size() >= 2 && code.size() <= 3 && code[0] == 'F') {
    int number = 0;
    for (const char c : code.substr(1)) number = number * 10 + (c - '0');
    return number >= 1 && number <= 12 ? numbered(ImGuiKey_F1, number - 1) : ImGuiKey_None;
  }
  for (const NamedKey& k : kKeys) {
    if (k.name == code) return k.key;
  }
  return ImGuiKey_None;
}

}  // namespace

extern "C" {

EMSCRIPTEN_KEEPALIVE void page_mouse(float x, float y) {
  ImGui::GetIO().AddMousePosEvent(x, y);
}

EMSCRIPTEN_KEEPALIVE void page_button(int button, int down) {
  if (button >= 0 && button < ImGuiMouseButton_COUNT) {
    ImGui::GetIO().AddMouseButtonEvent(button, down != 0);
  }
}

EMSCRIPTEN_KEEPALIVE void page_wheel(float x, float y) {
  ImGui::GetIO().AddMouseWheelEvent(x, y);
}

EMSCRIPTEN_KEEPALIVE void page_modifiers(int ctrl, int shift, int alt) {
  ImGuiIO& io = ImGui::GetIO();
  io.AddKeyEvent(ImGuiMod_Ctrl, ctrl != 0);
  io.AddKeyEvent(ImGuiMod_Shift, shift != 0);
  io.AddKeyEvent(ImGuiMod_Alt, alt != 0);
}

EMSCRIPTEN_KEEPALIVE void page_key(const char* code, const char* typed, int down) {
  if (const ImGuiKey key = key_of(code, typed); key != ImGuiKey_None) {
    ImGui::GetIO().AddKeyEvent(key, down != 0);
  }
}

EMSCRIPTEN_KEEPALIVE void page_text(const char* utf8) {
  ImGui::GetIO().AddInputCharactersUTF8(utf8);
}

// The page lost the keyboard: no key stays pressed.
EMSCRIPTEN_KEEPALIVE void page_focus(int focused) {
  ImGui::GetIO().AddFocusEvent(focused != 0);
}

}  // extern "C"
