// Time to the first curves, UI CPU time per frame on a scripted tour, and peak memory of the viewer
// on a synthetic trace. Rasterising is left out: this is what the program itself costs per frame.
//
// usage: viewer_bench [EVENTS]      (default 10,000,000)
#include <fmt/format.h>
#include <imgui.h>
#include <implot.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <thread>
#include <vector>

#include "tests/viewer/synthetic_trace.h"
#include "viewer/app/shell.h"
#include "viewer/widgets/fonts.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// Of this thread, so that other programs on the machine do not count.
double cpu_ms() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

double peak_memory_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

class Tour {
 public:
  Tour() {
    ImGui::CreateContext();
    ImPlot::CreateContext();
    ImGuiIO& io = ImGui::GetIO();
    io.IniFilename = nullptr;
    io.DisplaySize = {1920, 1080};
    io.ConfigFlags |= ImGuiConfigFlags_DockingEnable;
    apply_theme(true, 1);
    load_fonts(1);
    unsigned char* pixels = nullptr;
    int width = 0;
    int height = 0;
    io.Fonts->GetTexDataAsRGBA32(&pixels, &width, &height);
  }
  ~Tour() {
    ImPlot::DestroyContext();
    ImGui::DestroyContext();
  }
  Tour(const Tour&) = delete;
  Tour& operator=(const Tour&) = delete;

  void run(const char* name, Shell& shell, int frames, const std::function<void(int)>& act) {
    std::vector<double> times;
    for (int i = 0; i < frames; ++i) {
      act(i);
      const double began = cpu_ms();
      ImGui::GetIO().DeltaTime = 1.0F / 60;
      ImGui::NewFrame();
      shell.draw();
      ImGui::Render();
      times.push_back(cpu_ms() - began);
    }
    std::sort(times.begin(), times.end());
    const auto at = [&](double share) {
      return times[static_cast<size_t>(share * static_cast<double>(times.size() - 1))];
    };
    fmt::print("{:<34} p50 {:7.2f} ms   p99 {:7.2f} ms   worst {:7.2f} ms\n", name, at(0.5),
               at(0.99), times.back());
  }
};

void tour(std::shared_ptr<const Model> model) {
  Tour tour;
  Shell shell((Config()));
  shell.set_model(model);
  Selection& s = shell.selection();
  const double full = model->span_ns();
  const uint32_t events = model->lanes[0].memory->event_count();
  tour.run("settle", shell, 10, [](int) {});
  tour.run("still", shell, 200, [](int) {});
  tour.run("zoom in from all to events", shell, 300, [&](int i) {
    if (i == 0) s.fit(*model);
    s.zoom(*model, full * 0.37, 0.95);
  });
  tour.run("pan, zoomed to 1 %", shell, 300, [&](int i) {
    if (i == 0) s.show(*model, full * 0.2, full * 0.21);
    s.pan(*model, 0.03);
  });
  tour.run("pan, all in view but 20 %", shell, 300,
           [&](int i) { s.show(*model, full * 0.0005 * i, full * (0.8 + 0.0005 * i)); });
  const char* panels[] = {"scrub with the map in front", "scrub with the flame graph",
                          "scrub with the tables"};
  for (int p = 0; p < 3; ++p) {
    ImGui::GetIO().AddKeyEvent(static_cast<ImGuiKey>(ImGuiKey_2 + p), true);
    tour.run("(switch)", shell, 4, [](int) {});
    ImGui::GetIO().AddKeyEvent(static_cast<ImGuiKey>(ImGuiKey_2 + p), false);
    tour.run(panels[p], shell, 200, [&](int i) {
      s.set_event(*model, 0,
                  static_cast<uint32_t>(uint64_t{events} * static_cast<uint64_t>(i) / 200));
    });
  }
}

int bench(uint64_t events) {
  SyntheticOptions options;
  options.events = events;
  options.slots = 8192;
  options.stacks = 2000;
  options.events_per_step = 40'000;
  auto start = Clock::now();
  const TraceReader reader = synthetic_trace(options);
  fmt::print("{} events written in {:.0f} ms, file of {:.1f} MiB\n", events, ms_since(start),
             static_cast<double>(reader.file_bytes()) / (1 << 20));

  start = Clock::now();
  double first_curve_ms = 0;
  std::atomic<bool> stop{false};
  std::jthread sketch([&] {
    make_preview({&reader, 1}, stop, [&](const Preview&) {
      if (first_curve_ms == 0) first_curve_ms = ms_since(start);
    });
  });
  Result<TraceModel> trace = load_trace({&reader, 1});
  const double read_ms = ms_since(start);
  stop = true;
  sketch.join();
  if (!trace) return 1;
  auto model = make_model(std::move(*trace), {});
  if (!model) return 1;
  const double ready_ms = ms_since(start);
  fmt::print("first curve after {:.0f} ms, read {:.0f} ms, ready {:.0f} ms\n", first_curve_ms,
             read_ms, ready_ms);
  const Lane& lane = (*model)->lanes[0];
  fmt::print("pyramid {:.2f} B/event, state index {:.2f} B/event in {} keyframes\n",
             static_cast<double>(lane.curves.memory_bytes()) / static_cast<double>(events),
             static_cast<double>(lane.states.memory_bytes()) / static_cast<double>(events),
             lane.states.keyframe_count());
  tour(std::shared_ptr<const Model>(std::move(*model)));
  fmt::print("peak memory {:.0f} MiB\n", peak_memory_mib());
  return 0;
}

}  // namespace
}  // namespace tidemark::view

int main(int argc, char** argv) {
  const uint64_t events = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 10'000'000;
  return tidemark::view::bench(events);
}
