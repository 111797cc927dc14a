// Measures what Mesa's software renderer costs: CPU time of all its threads per frame, and how
// often a frame covers the window (1: every pixel is drawn once).
//
// usage: drawing_bench PATH [WIDTH HEIGHT]
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>

#include "viewer/app/headless.h"
#include "viewer/app/shell.h"

namespace tidemark::view {
namespace {

constexpr int kFrames = 40;

double cpu_ms() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

double area_px(const ImDrawData& data) {
  double area = 0;
  for (const ImDrawList* list : data.CmdLists) {
    for (const ImDrawCmd& command : list->CmdBuffer) {
      const auto at = [&](unsigned i) {
        const ImVec2 p =
            list
                ->VtxBuffer[static_cast<int>(
                    list->IdxBuffer[static_cast<int>(command.IdxOffset + i)] + command.VtxOffset)]
                .pos;
        return ImVec2(std::clamp(p.x, command.ClipRect.x, command.ClipRect.z),
                      std::clamp(p.y, command.ClipRect.y, command.ClipRect.w));
      };
      for (unsigned i = 0; i + 2 < command.ElemCount; i += 3) {
        const ImVec2 a = at(i);
        const ImVec2 b = at(i + 1);
        const ImVec2 c = at(i + 2);
        area += std::abs((b.x - a.x) * (c.y - a.y) - (c.x - a.x) * (b.y - a.y)) / 2;
      }
    }
  }
  return area;
}

int run(const char* path, int width, int height) {
  const auto model = load_model(path);
  if (!model) {
    fmt::print(stderr, "{}\n", model.error().message);
    return 1;
  }
  const auto headless = Headless::create(width, height, true, 1);
  if (!headless) {
    fmt::print(stderr, "{}\n", headless.error().message);
    return 1;
  }
  Shell shell{Config{}};
  shell.set_model(*model);
  (*headless)->render([&] { shell.draw(); }, 10);
  double before = cpu_ms();
  for (int i = 0; i < kFrames; ++i) {
    ImGui::NewFrame();
    shell.draw();
    ImGui::Render();
  }
  const double panels = (cpu_ms() - before) / kFrames;
  before = cpu_ms();
  for (int i = 0; i < kFrames; ++i) (*headless)->render([&] { shell.draw(); }, 1);
  const double all = (cpu_ms() - before) / kFrames;
  fmt::print(
      "{} x {}: {:.1f} ms of CPU per frame, of which panels {:.1f} ms; covers the window {:.2f} "
      "times\n",
      width, height, all, panels,
      area_px(*ImGui::GetDrawData()) / (static_cast<double>(width) * height));
  return 0;
}

}  // namespace
}  // namespace tidemark::view

int main(int argc, char** argv) {
  if (argc != 2 && argc != 4) {
    fmt::print(stderr, "usage: drawing_bench PATH [WIDTH HEIGHT]\n");
    return 2;
  }
  return tidemark::view::run(argv[1], argc == 4 ? std::atoi(argv[2]) : 1500,
                             argc == 4 ? std::atoi(argv[3]) : 950);
}
