// Measures the viewer on a synthetic job or a recorded trace: time to the first curves, UI CPU time
// per frame on a scripted tour, and peak memory. Rasterising is left out: this is what the program
// itself costs per frame. The limit for opening is one plain read of the file with a checksum;
// times to open are also given as a multiple of it ("x plain read").
//
// usage: viewer_bench [EVENTS [RANKS [KERNELS_PER_EVENT [SHAPE]]]]
//            a synthetic job with EVENTS events in total, by default 10,000,000 of 1 rank. RANKS
//            may be a list ("1,16,64,256"); each is measured in its own process. SHAPE: "odd" for
//            sizes that never repeat, "crowded" for two hundred thousand blocks live at once
//        viewer_bench PATH                 a trace of any kind
//        viewer_bench snapshot [ENTRIES]   a PyTorch snapshot, from a cold start to the first map
//        viewer_bench write PATH [EVENTS]  only writes the synthetic job, for tests/web/measure.py
//
// The index of a large trace is kept in TIDEMARK_INDEX; otherwise in the scratch directory, for
// this run only. Every synthetic job is opened for the first time, then again with its index.
#include <fcntl.h>
#include <fmt/format.h>
#include <imgui.h>
#include <implot.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "export/snapshot/snapshot_export.h"
#include "proto/base/crc32.h"
#include "tests/support/synthetic_trace.h"
#include "viewer/app/shell.h"
#include "viewer/widgets/fonts.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// CPU time of this thread, so that other programs on the machine do not count.
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

  double timed_frame(Shell& shell) {
    const double began = cpu_ms();
    frame(shell);
    return cpu_ms() - began;
  }

  void run(const char* name, Shell& shell, int frames, const std::function<void(int)>& act) {
    std::vector<double> times;
    for (int i = 0; i < frames; ++i) {
      act(i);
      times.push_back(timed_frame(shell));
    }
    tell(name, times);
    all_.insert(all_.end(), times.begin(), times.end());
  }

  // All frames since the last call.
  void tell_all(const char* name) { tell(name, std::exchange(all_, {})); }

  static void tell(const char* name, std::vector<double> times) {
    if (times.empty()) return;
    std::sort(times.begin(), times.end());
    const auto at = [&](double share) {
      return times[static_cast<size_t>(share * static_cast<double>(times.size() - 1))];
    };
    fmt::print("{:<34} p50 {:7.2f} ms   p99 {:7.2f} ms   worst {:7.2f} ms   of {} frames\n", name,
               at(0.5), at(0.99), times.back(), times.size());
  }

 private:
  std::vector<double> all_;
};

void press(Tour& tour, Shell& shell, ImGuiKey key) {
  ImGui::GetIO().AddKeyEvent(key, true);
  tour.frame(shell);
  ImGui::GetIO().AddKeyEvent(key, false);
  tour.run("(switch panels)", shell, 4, [](int) {});
}

void look_around(Tour& tour, Shell& shell, const Model& model) {
  Selection& s = shell.selection();
  const double full = model.span_ns();
  tour.run("settle", shell, 30, [](int) {});
  tour.run("still", shell, 200, [](int) {});
  tour.run("zoom in from all to events", shell, 300, [&](int i) {
    if (i == 0) s.view.fit();
    s.view.zoom(full * 0.37, 0.95);
  });
  tour.run("pan, zoomed to 1 %", shell, 300, [&](int i) {
    if (i == 0) s.view.show(full * 0.2, full * 0.21);
    s.view.pan(0.03);
  });
  tour.run("pan, all in view but 20 %", shell, 300,
           [&](int i) { s.view.show(full * 0.0005 * i, full * (0.8 + 0.0005 * i)); });
  tour.run("stop, zoom, stop ...", shell, 200, [&](int i) {
    if (i % 10 == 0) s.view.show(full * 0.002 * i, full * (0.5 + 0.002 * i));
  });
}

void scrub(Tour& tour, Shell& shell, const Model& model) {
  Selection& s = shell.selection();
  const uint32_t events = model.lanes[s.cursor.lane()].memory->event_count();
  const char* panels[] = {"scrub with the map in front", "scrub with the flame graph",
                          "scrub with the tables"};
  for (int p = 0; p < 3; ++p) {
    press(tour, shell, static_cast<ImGuiKey>(ImGuiKey_2 + p));
    tour.run(panels[p], shell, 200, [&](int i) {
      s.set_event(model, s.cursor.lane(),
                  static_cast<uint32_t>(uint64_t{events} * static_cast<uint64_t>(i) / 200));
    });
  }
}

// Frames until the picture of the present view is there.
double refined_ms(Tour& tour, Shell& shell) {
  const auto start = Clock::now();
  while (!shell.panels().stack.view().is_current() && ms_since(start) < 60'000) {
    tour.frame(shell);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return ms_since(start);
}

// The stacked timeline: what a frame costs while it is made in the background, and how long that
// takes.
void stack_tour(Tour& tour, Shell& shell, const Model& model) {
  Selection& s = shell.selection();
  const double full = model.span_ns();
  const uint32_t events = model.lanes[s.cursor.lane()].memory->event_count();
  press(tour, shell, ImGuiKey_0);
  StackPanel& stack = shell.panels().stack;
  for (int way = 0; way < kStackWays; ++way) {
    const auto by = static_cast<StackBy>(way);
    if (!has_stack_way(model, model.lanes[s.cursor.lane()], by)) continue;
    stack.options.by = by;
    s.view.fit();
    const std::string name = std::string("stack by ") + stack_way_name(by);
    tour.run((name + ", begin").c_str(), shell, 4, [](int) {});
    const double first = refined_ms(tour, shell);
    s.view.show(full * 0.1, full * 0.9);
    tour.frame(shell);
    const double all = refined_ms(tour, shell);
    s.view.show(full * 0.4, full * 0.41);
    tour.frame(shell);
    const double part = refined_ms(tour, shell);
    fmt::print(
        "{}: first picture after {:.0f} ms, of most of the run {:.0f} ms, of 1 % {:.0f} ms\n", name,
        first, all, part);
    tour.run((name + ", zoom and pan").c_str(), shell, 300, [&](int i) {
      if (i == 0) s.view.fit();
      if (i < 150) s.view.zoom(full * 0.37, 0.95);
      if (i >= 150) s.view.pan(0.03);
    });
    s.view.fit();
    tour.run((name + ", scrub").c_str(), shell, 100, [&](int i) {
      s.set_event(model, s.cursor.lane(),
                  static_cast<uint32_t>(uint64_t{events} * static_cast<uint64_t>(i) / 100));
    });
  }
  press(tour, shell, ImGuiKey_1);
}

void compare_ranks_panel(Tour& tour, Shell& shell, const Model& model) {
  if (model.lanes.size() < 2) return;
  Selection& s = shell.selection();
  const double full = model.span_ns();
  press(tour, shell, ImGuiKey_7);
  for (const bool curves : {false, true}) {
    shell.panels().ranks.curves = curves;
    const std::string name = curves ? "ranks as curves" : "ranks as a heat map";
    tour.run((name + ", still").c_str(), shell, 200, [&](int i) {
      if (i == 0) s.view.fit();
    });
    tour.run((name + ", zoom and pan").c_str(), shell, 200, [&](int i) {
      if (i < 100) s.view.zoom(full * 0.37, 0.95);
      if (i >= 100) s.view.pan(0.03);
    });
  }
  press(tour, shell, ImGuiKey_1);
}

// The limit for every reader of the file: reading it once and computing a checksum.
double plain_read_ms(const std::string& path) {
  const auto start = Clock::now();
  std::vector<std::filesystem::path> files;
  if (std::filesystem::is_directory(path)) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
  } else {
    files.emplace_back(path);
  }
  std::vector<char> buffer(size_t{1} << 20);
  uint32_t sum = 0;
  for (const auto& file : files) {
    const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    for (ssize_t n = 1; fd >= 0 && n > 0;) {
      n = ::read(fd, buffer.data(), buffer.size());
      if (n > 0) sum ^= crc32(buffer.data(), static_cast<size_t>(n));
    }
    if (fd >= 0) ::close(fd);
  }
  const double ms = ms_since(start);
  fmt::print("plain read with checksum {:08x}: {:.0f} ms\n", sum, ms);
  return ms;
}

// Opens a file as a user would, and prints when there is something to see.
std::shared_ptr<const Model> open(Tour& tour, Shell& shell, const std::string& path) {
  const double limit_ms = plain_read_ms(path);
  const auto start = Clock::now();
  shell.open(path);
  double first_ms = 0;
  std::vector<double> frames;
  const auto draw = [&] {
    frames.push_back(tour.timed_frame(shell));
    if (first_ms == 0 && shell.has_curves()) first_ms = ms_since(start);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  };
  while (shell.loading()) draw();
  const auto model = shell.shared_model();
  if (model == nullptr) return nullptr;
  const double panels_ms = ms_since(start);
  Tour::tell("frames while loading", std::exchange(frames, {}));
  fmt::print("first curves after {:.0f} ms, panels after {:.0f} ms = {:.1f} x plain read\n",
             first_ms, panels_ms, panels_ms / limit_ms);
  // A user starts to look at the curves as soon as they are there.
  double known_ms = model->categories_known ? panels_ms : 0;
  const double full = model->span_ns();
  for (int i = 0; shell.working(); ++i) {
    shell.selection().view.show(full * 0.0005 * (i % 300), full * (0.8 + 0.0005 * (i % 300)));
    draw();
    if (known_ms == 0 && model->categories_known) known_ms = ms_since(start);
  }
  Tour::tell("frames until the findings", frames);
  if (known_ms == 0) known_ms = ms_since(start);
  fmt::print("all panels after {:.0f} ms = {:.1f} x plain read, the findings after {:.0f} ms\n",
             known_ms, known_ms / limit_ms, ms_since(start));
  shell.selection().view.fit();
  return model;
}

int measure(const std::string& path, const char* name) {
  fmt::print("--- {}\n", name);
  Tour tour;
  Shell shell((Config()));
  const auto model = open(tour, shell, path);
  if (model == nullptr) {
    fmt::print(stderr, "{} could not be opened\n", path);
    return 1;
  }
  uint64_t kernels = 0;
  for (const Activity& a : model->activity) kernels += a.kernels;
  fmt::print("{} events, {} kernels, {} lanes; memory after loading {:.0f} MiB\n", model->events,
             kernels, model->lanes.size(), peak_memory_mib());
  if (!model->lanes.empty()) {
    look_around(tour, shell, *model);
    scrub(tour, shell, *model);
    stack_tour(tour, shell, *model);
    compare_ranks_panel(tour, shell, *model);
    tour.tell_all("whole tour");
  }
  fmt::print("peak memory {:.0f} MiB\n", peak_memory_mib());
  return 0;
}

// Runs in its own process, so that its peak memory can be measured.
int apart(const std::function<int()>& act) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    const int result = act();
    std::fflush(stdout);
    ::_exit(result);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

std::string scratch(const char* name) {
  return (std::filesystem::temp_directory_path() / fmt::format("tidemark-{}-{}", ::getpid(), name))
      .string();
}

SyntheticOptions job(uint64_t events, uint32_t ranks, const std::string& shape) {
  SyntheticOptions options;
  options.events = events / ranks;
  options.ranks = ranks;
  options.slots = 8192;
  options.stacks = 2000;
  options.events_per_step = 40'000;
  options.card = true;
  options.recorded = true;
  options.repeat_sizes = shape != "odd";
  if (shape == "crowded") {
    options.slots = 1 << 19;
    options.events_per_step = 1'200'000;
  }
  return options;
}

int bench_job(uint64_t events, uint32_t ranks, uint32_t kernels, const std::string& shape) {
  const std::string path = scratch("job.tmk");
  const std::string index = scratch("index");
  if (std::getenv("TIDEMARK_INDEX") == nullptr) ::setenv("TIDEMARK_INDEX", index.c_str(), 1);
  SyntheticOptions options = job(events, ranks, shape);
  options.kernels_per_event = kernels;
  fmt::print("=== {} events of {} ranks {}\n", events, ranks, shape);
  int failed = apart([&] { return write_synthetic_trace(options, path) ? 0 : 1; });
  if (failed == 0) {
    fmt::print("file of {:.1f} MiB\n",
               static_cast<double>(std::filesystem::file_size(path)) / (1 << 20));
    failed += apart([&] { return measure(path, "opened for the first time"); });
    failed += apart([&] { return measure(path, "opened again"); });
  }
  std::filesystem::remove(path);
  std::filesystem::remove_all(index);
  return failed == 0 ? 0 : 1;
}

int bench_jobs(uint64_t events, const std::string& ranks, uint32_t kernels,
               const std::string& shape) {
  int failed = 0;
  for (size_t at = 0; at < ranks.size();) {
    const size_t end = std::min(ranks.find(',', at), ranks.size());
    const uint64_t count = std::strtoull(ranks.substr(at, end - at).c_str(), nullptr, 10);
    failed +=
        bench_job(events, static_cast<uint32_t>(std::max<uint64_t>(count, 1)), kernels, shape);
    at = end + 1;
  }
  return failed == 0 ? 0 : 1;
}

// Drops the file from the page cache.
void forget_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  ::fdatasync(fd);
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  ::close(fd);
}

// A PyTorch snapshot with this many entries, from a cold start to a drawn memory map.
int bench_snapshot(uint64_t entries) {
  const std::string path = scratch("snapshot.pickle");
  {
    const TraceReader reader = synthetic_trace(job(entries, 1, ""));
    const Result<TraceModel> trace = load_trace({&reader, 1});
    if (!trace || !export_snapshot({*trace, {&reader, 1}}, {}, path)) return 1;
  }
  forget_file(path);
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
  const auto text = [&](int i, const char* otherwise) { return argc > i ? argv[i] : otherwise; };
  const auto number = [&](int i, const char* otherwise) {
    return std::strtoull(text(i, otherwise), nullptr, 10);
  };
  const std::string first = text(1, "10000000");
  if (first == "snapshot") return bench_snapshot(number(2, "1000000"));
  if (first == "write" && argc > 2) {
    return write_synthetic_trace(job(number(3, "10000000"), 1, ""), argv[2]) ? 0 : 1;
  }
  if (first.find_first_not_of("0123456789") != std::string::npos) return measure(first, argv[1]);
  return bench_jobs(number(1, "10000000"), text(2, "1"), static_cast<uint32_t>(number(3, "0")),
                    text(4, ""));
}
