// Time to the first curves, UI CPU time per frame on a scripted tour, and peak memory of the viewer
// on a synthetic job or a recorded trace. Rasterising is left out: this is what the program itself
// costs per frame.
//
// usage: viewer_bench [EVENTS [RANKS [KERNELS_PER_EVENT]]]      (default 10,000,000 events, 1 rank)
//        viewer_bench PATH                                      a trace of any kind
//        viewer_bench snapshot [ENTRIES]                        a PyTorch snapshot, to its first
//        map
#include <fmt/format.h>
#include <imgui.h>
#include <implot.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <thread>
#include <vector>

#include "export/snapshot_export.h"
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

  void frame(Shell& shell) {
    ImGui::GetIO().DeltaTime = 1.0F / 60;
    ImGui::NewFrame();
    shell.draw();
    ImGui::Render();
  }

  void run(const char* name, Shell& shell, int frames, const std::function<void(int)>& act) {
    std::vector<double> times;
    for (int i = 0; i < frames; ++i) {
      act(i);
      const double began = cpu_ms();
      frame(shell);
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

void tour(Tour& tour, Shell& shell, const std::shared_ptr<const Model>& model) {
  Selection& s = shell.selection();
  const double full = model->span_ns();
  const uint32_t events = model->lanes[s.lane].memory->event_count();
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
      s.set_event(*model, s.lane,
                  static_cast<uint32_t>(uint64_t{events} * static_cast<uint64_t>(i) / 200));
    });
  }
}

// Opens a file as a person would, and tells when there was something to see.
std::shared_ptr<const Model> open(Tour& tour, Shell& shell, const std::string& path) {
  const auto start = Clock::now();
  shell.open(path);
  double first_ms = 0;
  std::vector<double> frames;
  while (shell.loading() || shell.model() == nullptr) {
    if (!shell.loading() && shell.model() == nullptr) return nullptr;
    const double began = cpu_ms();
    tour.frame(shell);
    frames.push_back(cpu_ms() - began);
    if (first_ms == 0 && shell.has_curves()) first_ms = ms_since(start);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const double ready_ms = ms_since(start);
  tour.frame(shell);
  std::sort(frames.begin(), frames.end());
  fmt::print(
      "first curves after {:.0f} ms, all panels after {:.0f} ms; frames while loading: "
      "worst {:.2f} ms\n",
      first_ms, ready_ms, frames.empty() ? 0 : frames.back());
  return shell.shared_model();
}

int measure(const std::string& path) {
  Tour tour_of;
  Shell shell((Config()));
  const auto model = open(tour_of, shell, path);
  if (model == nullptr) {
    fmt::print(stderr, "{} could not be opened\n", path);
    return 1;
  }
  uint64_t kernels = 0;
  for (const Activity& a : model->activity) kernels += a.kernels;
  fmt::print("{} events, {} kernels, {} lanes; memory after loading {:.0f} MiB\n", model->events,
             kernels, model->lanes.size(), peak_memory_mib());
  tour(tour_of, shell, model);
  fmt::print("peak memory {:.0f} MiB\n", peak_memory_mib());
  return 0;
}

std::string scratch(const char* name) {
  return (std::filesystem::temp_directory_path() / fmt::format("tidemark-{}-{}", ::getpid(), name))
      .string();
}

SyntheticOptions job(uint64_t events, uint32_t ranks) {
  SyntheticOptions options;
  options.events = events / ranks;
  options.ranks = ranks;
  options.slots = 8192;
  options.stacks = 2000;
  options.events_per_step = 40'000;
  options.card = true;
  return options;
}

int bench_job(uint64_t events, uint32_t ranks, uint32_t kernels) {
  const std::string path = scratch("job.tmk");
  SyntheticOptions options = job(events, ranks);
  options.kernels_per_event = kernels;
  const auto start = Clock::now();
  if (!write_synthetic_trace(options, path)) return 1;
  fmt::print("{} events of {} ranks written in {:.0f} ms, file of {:.1f} MiB\n", events, ranks,
             ms_since(start), static_cast<double>(std::filesystem::file_size(path)) / (1 << 20));
  const int result = measure(path);
  std::filesystem::remove(path);
  return result;
}

// A PyTorch snapshot of so many entries, from nothing to a drawn memory map.
int bench_snapshot(uint64_t entries) {
  const std::string path = scratch("snapshot.pickle");
  {
    const TraceReader reader = synthetic_trace(job(entries, 1));
    const Result<TraceModel> trace = load_trace({&reader, 1});
    if (!trace || !export_snapshot({*trace, {&reader, 1}}, {}, path)) return 1;
  }
  Tour tour_of;
  Shell shell((Config()));
  if (!shell.show_only("map")) return 1;
  const auto start = Clock::now();
  shell.open(path);
  while (shell.loading()) {
    tour_of.frame(shell);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  tour_of.frame(shell);
  const double ms = ms_since(start);
  fmt::print("snapshot of {} entries, {:.1f} MiB: memory map drawn after {:.0f} ms, {:.0f} MiB\n",
             entries, static_cast<double>(std::filesystem::file_size(path)) / (1 << 20), ms,
             peak_memory_mib());
  std::filesystem::remove(path);
  return shell.model() == nullptr ? 1 : 0;
}

}  // namespace
}  // namespace tidemark::view

int main(int argc, char** argv) {
  using namespace tidemark::view;
  const std::string first = argc > 1 ? argv[1] : "10000000";
  const auto number = [&](int i, uint64_t otherwise) {
    return argc > i ? std::strtoull(argv[i], nullptr, 10) : otherwise;
  };
  if (first == "snapshot") return bench_snapshot(number(2, 1'000'000));
  if (first.find_first_not_of("0123456789") != std::string::npos) return measure(first);
  return bench_job(number(1, 10'000'000), static_cast<uint32_t>(number(2, 1)),
                   static_cast<uint32_t>(number(3, 0)));
}
