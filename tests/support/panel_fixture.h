// The whole program without its window: tests send real input events and check the selection, the
// panels and what was drawn. No OpenGL.
#pragma once

#include <gtest/gtest.h>
#include <imgui.h>
#include <imgui_internal.h>
#include <implot.h>

#include <chrono>
#include <memory>
#include <thread>

#include "tests/support/synthetic_trace.h"
#include "viewer/app/shell.h"
#include "viewer/widgets/fonts.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

inline std::shared_ptr<const Model> model_of(const SyntheticOptions& options) {
  auto made = make_model(synthetic_model(options), {});
  return std::shared_ptr<const Model>(std::move(*made));
}

class Interaction : public testing::Test {
 protected:
  Interaction() { start(); }
  ~Interaction() override { stop(); }

  void start() {
    ImGui::CreateContext();
    ImPlot::CreateContext();
    ImGuiIO& io = ImGui::GetIO();
    io.IniFilename = nullptr;
    io.DisplaySize = {1400, 900};
    io.ConfigFlags |= ImGuiConfigFlags_DockingEnable;
    io.BackendFlags |= ImGuiBackendFlags_RendererHasVtxOffset;  // every OpenGL 3.3 has it
    apply_theme(true, 1);
    load_fonts(1);
    unsigned char* pixels = nullptr;
    int width = 0;
    int height = 0;
    io.Fonts->GetTexDataAsRGBA32(&pixels, &width, &height);
    shell_ = std::make_unique<Shell>(Config());
  }
  void stop() {
    shell_.reset();
    ImPlot::DestroyContext();
    ImGui::DestroyContext();
  }

  void frame(int count = 2) {
    for (int i = 0; i < count; ++i) {
      ImGui::GetIO().DeltaTime = 1.0F / 60;
      ImGui::NewFrame();
      shell_->draw();
      ImGui::Render();
    }
  }
  void open_file(const std::string& path) {
    const auto loaded = load_model(path);
    ASSERT_TRUE(loaded) << loaded.error().message;
    shell_->set_model(*loaded);
    frame(6);
  }
  void open(const SyntheticOptions& options = {}) {
    shell_->set_model(model_of(options));
    frame(6);
  }
  void move(ImVec2 to) {
    ImGui::GetIO().AddMousePosEvent(to.x, to.y);
    frame();
  }
  void button(bool down, int which = 0) {
    ImGui::GetIO().AddMouseButtonEvent(which, down);
    frame();
  }
  void click(ImVec2 at, int which = 0) {
    move(at);
    button(true, which);
    button(false, which);
  }
  void key(ImGuiKey k) {
    ImGui::GetIO().AddKeyEvent(k, true);
    frame();
    ImGui::GetIO().AddKeyEvent(k, false);
    frame();
  }
  void hold(ImGuiKey k, bool down) {
    ImGui::GetIO().AddKeyEvent(k, down);
    frame();
  }

  static ImRect window(const char* title) {
    const ImGuiWindow* w = ImGui::FindWindowByName(title);
    return w == nullptr ? ImRect() : w->Rect();
  }
  // A point in the area of the lanes, by share of its width and height.
  static ImVec2 in_timeline(float x, float y) {
    const ImRect r = window(TimelinePanel::kTitle);
    return {r.Min.x + 110 + (r.GetWidth() - 140) * x, r.Min.y + 160 + (r.GetHeight() - 200) * y};
  }

  Selection& selection() { return shell_->selection(); }
  const Model& model() { return *shell_->model(); }

  std::unique_ptr<Shell> shell_;
};

}  // namespace tidemark::view
