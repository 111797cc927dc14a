// Measures how fast recorded requests are replayed through the model of PyTorch's allocator. The
// ratio ("x load time") is the time of one prediction against the time to load the recording.
//
//   whatif_bench [SNAPSHOT_OR_TRACE...]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

#include "analysis/whatif/whatif.h"
#include "collector/trace_source.h"

namespace tidemark {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The best of a few runs, to leave out disturbances by other programs.
template <typename Work>
double best_of(int runs, Work&& work) {
  double best = 1e9;
  for (int i = 0; i < runs; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    best = std::min(best, seconds_since(start));
  }
  return best;
}

void predictions(const WhatIf& whatif, double load_s) {
  for (const char* conf :
       {"", "expandable_segments:True", "max_split_size_mb:64", "roundup_power2_divisions:8"}) {
    const auto settings = AllocatorSettings::parse(conf);
    if (!settings) continue;
    Prediction p;
    const double s = best_of(5, [&] { p = whatif.predict(*settings); });
    fmt::print("  {:<28} {:>6.1f} M events/s   {:>4.2f} x load time   reserved peak {}\n",
               *conf == 0 ? "default" : conf, static_cast<double>(p.events) / s / 1e6, s / load_s,
               p.reserved_peak);
  }
}

int measure(const std::string& path) {
  const Result<TraceSource> source = open_trace(path);
  if (!source) {
    fmt::print(stderr, "{}\n", source.error().message);
    return 1;
  }
  const auto load = [&] { return load_trace(source->readers); };
  const double load_s = best_of(3, [&] { (void)load().ok(); });
  const Result<TraceModel> model = load();
  if (!model) return 1;
  for (const ProcessModel& process : model->processes) {
    for (const AllocationHistory& framework : process.framework) {
      const double own_s =
          best_of(3, [&] { (void)WhatIf::prepare(process, framework.device).ok(); });
      const Result<WhatIf> whatif = WhatIf::prepare(process, framework.device);
      if (!whatif) continue;
      const auto events = static_cast<double>(framework.recorded_events);
      fmt::print("{}: {} events\n  {:<28} {:>6.1f} M events/s\n", path, framework.recorded_events,
                 "loading the model", events / load_s / 1e6);
      fmt::print("  {:<28} {:>6.1f} M events/s   {:>4.2f} x load time   {}\n", "recorded settings",
                 events / own_s / 1e6, own_s / load_s,
                 whatif->own().exact() ? "exact" : "not exact");
      predictions(*whatif, load_s);
    }
  }
  return 0;
}

}  // namespace
}  // namespace tidemark

int main(int argc, char** argv) {
  if (argc == 1) return tidemark::measure(TIDEMARK_BENCH_SNAPSHOT);
  int code = 0;
  for (int i = 1; i < argc; ++i) code |= tidemark::measure(argv[i]);
  return code;
}
