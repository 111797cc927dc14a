#include "viewer/widgets/theme.h"

#include <implot.h>

#include <initializer_list>

namespace tidemark::view {

namespace {

Theme current;

Theme dark_theme() {
  Theme t;
  t.background = {16, 19, 24};
  t.panel = {23, 27, 34};
  t.raised = {34, 40, 50};
  t.line = {52, 60, 73};
  t.text = {226, 231, 238};
  t.dim = {146, 156, 170};
  t.accent = {86, 180, 233};
  t.allocated = {86, 180, 233};
  t.requested = {64, 200, 160};
  t.reserved = {230, 159, 0};
  t.used = {190, 196, 206};
  t.pending = {204, 121, 167};
  t.limit = {232, 104, 66};
  t.cursor = {245, 245, 245};
  t.compare = {240, 228, 66};
  t.hole = {70, 78, 92};
  t.bad = {240, 105, 75};
  t.warning = {240, 190, 70};
  t.good = {64, 200, 160};
  return t;
}

Theme light_theme() {
  Theme t;
  t.dark = false;
  t.background = {233, 236, 241};
  t.panel = {252, 252, 253};
  t.raised = {238, 241, 246};
  t.line = {205, 211, 220};
  t.text = {28, 33, 41};
  t.dim = {98, 107, 121};
  t.accent = {0, 114, 178};
  t.allocated = {0, 114, 178};
  t.requested = {0, 140, 102};
  t.reserved = {204, 130, 0};
  t.used = {96, 104, 118};
  t.pending = {176, 84, 136};
  t.limit = {196, 70, 20};
  t.cursor = {20, 24, 30};
  t.compare = {136, 34, 85};
  t.hole = {186, 193, 204};
  t.bad = {196, 56, 20};
  t.warning = {166, 110, 0};
  t.good = {0, 128, 96};
  return t;
}

void set_lengths(ImGuiStyle& s) {
  s = ImGuiStyle();
  s.WindowPadding = {12, 10};
  s.FramePadding = {9, 4};
  s.ItemSpacing = {9, 7};
  s.ItemInnerSpacing = {7, 5};
  s.CellPadding = {8, 3};
  s.IndentSpacing = 18;
  s.ScrollbarSize = 13;
  s.GrabMinSize = 11;
  s.WindowBorderSize = 0;
  s.ChildBorderSize = 0;
  s.PopupBorderSize = 1;
  s.FrameBorderSize = 1;
  s.TabBorderSize = 0;
  s.WindowRounding = 4;
  s.ChildRounding = 5;
  s.FrameRounding = 4;
  s.PopupRounding = 5;
  s.ScrollbarRounding = 6;
  s.GrabRounding = 4;
  s.TabRounding = 4;
  s.DockingSeparatorSize = 3;
  s.SeparatorTextBorderSize = 1;
  s.WindowMenuButtonPosition = ImGuiDir_None;
  s.HoverDelayNormal = 0.3F;
}

void set_colours(ImGuiStyle& s, const Theme& t) {
  ImVec4* c = s.Colors;
  const auto set = [&](ImGuiCol which, Rgb colour, float alpha = 1) {
    c[which] = vec(colour, alpha);
  };
  if (t.dark) {
    ImGui::StyleColorsDark(&s);
  } else {
    ImGui::StyleColorsLight(&s);
  }
  const Rgb hover = shade(t.raised, t.dark ? 0.10 : -0.06);
  const Rgb press = shade(t.raised, t.dark ? 0.18 : -0.12);
  set(ImGuiCol_Text, t.text);
  set(ImGuiCol_TextDisabled, t.dim);
  set(ImGuiCol_WindowBg, t.panel);
  set(ImGuiCol_ChildBg, t.panel, 0);
  set(ImGuiCol_PopupBg, t.dark ? shade(t.panel, 0.04) : t.panel, 0.98F);
  set(ImGuiCol_Border, t.line);
  set(ImGuiCol_FrameBg, t.raised);
  set(ImGuiCol_FrameBgHovered, hover);
  set(ImGuiCol_FrameBgActive, press);
  for (const ImGuiCol title :
       {ImGuiCol_TitleBg, ImGuiCol_TitleBgActive, ImGuiCol_TitleBgCollapsed, ImGuiCol_MenuBarBg}) {
    set(title, t.background);
  }
  set(ImGuiCol_ScrollbarBg, t.panel, 0);
  set(ImGuiCol_ScrollbarGrab, t.line);
  set(ImGuiCol_ScrollbarGrabHovered, press);
  set(ImGuiCol_ScrollbarGrabActive, t.dim);
  set(ImGuiCol_CheckMark, t.accent);
  set(ImGuiCol_SliderGrab, t.accent, 0.8F);
  set(ImGuiCol_SliderGrabActive, t.accent);
  set(ImGuiCol_Button, t.raised);
  set(ImGuiCol_ButtonHovered, hover);
  set(ImGuiCol_ButtonActive, press);
  set(ImGuiCol_Header, t.accent, 0.22F);
  set(ImGuiCol_HeaderHovered, t.accent, 0.30F);
  set(ImGuiCol_HeaderActive, t.accent, 0.40F);
  set(ImGuiCol_Separator, t.line);
  set(ImGuiCol_SeparatorHovered, t.accent, 0.6F);
  set(ImGuiCol_SeparatorActive, t.accent);
  set(ImGuiCol_Tab, t.background);
  set(ImGuiCol_TabUnfocused, t.background);
  set(ImGuiCol_TabHovered, hover);
  set(ImGuiCol_TabActive, t.panel);
  set(ImGuiCol_TabUnfocusedActive, t.panel);
  set(ImGuiCol_DockingPreview, t.accent, 0.5F);
  set(ImGuiCol_DockingEmptyBg, t.background);
  set(ImGuiCol_TableHeaderBg, t.raised);
  set(ImGuiCol_TableBorderStrong, t.line);
  set(ImGuiCol_TableBorderLight, t.line, 0.6F);
  set(ImGuiCol_TableRowBg, t.panel, 0);
  set(ImGuiCol_TableRowBgAlt, t.raised, 0.45F);
  set(ImGuiCol_TextSelectedBg, t.accent, 0.35F);
  set(ImGuiCol_NavHighlight, t.accent);
  set(ImGuiCol_PlotHistogram, t.accent);
  set(ImGuiCol_ModalWindowDimBg, t.background, 0.6F);
}

void set_plot_style(const Theme& t) {
  if (ImPlot::GetCurrentContext() == nullptr) return;
  ImPlotStyle& p = ImPlot::GetStyle();
  p = ImPlotStyle();
  p.PlotPadding = {0, 0};
  p.PlotBorderSize = 0;
  p.MinorAlpha = 1;  // ImPlot treats ticks set by hand as minor ones
  p.LineWeight = 1.6F * t.scale;
  p.Colors[ImPlotCol_PlotBg] = vec(t.raised, t.dark ? 0.35F : 0.55F);
  p.Colors[ImPlotCol_FrameBg] = vec(t.panel, 0);
  p.Colors[ImPlotCol_AxisGrid] = vec(t.line, 0.55F);
  p.Colors[ImPlotCol_AxisText] = vec(t.dim);
}

}  // namespace

const Theme& theme() {
  return current;
}

ImVec4 vec(Rgb c, float alpha) {
  constexpr float kFull = 255;
  return {static_cast<float>(c.r) / kFull, static_cast<float>(c.g) / kFull,
          static_cast<float>(c.b) / kFull, alpha};
}

void apply_theme(bool dark, float scale) {
  current = dark ? dark_theme() : light_theme();
  current.scale = scale;
  ImGuiStyle& style = ImGui::GetStyle();
  set_lengths(style);
  set_colours(style, current);
  style.ScaleAllSizes(scale);
  set_plot_style(current);
}

}  // namespace tidemark::view
