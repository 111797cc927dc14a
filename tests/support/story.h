// A fictitious program for tests of the diagnosis, written in the terms of a training loop. It
// writes the trace a recorder would write, using a small caching allocator.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "analysis/report/report.h"
#include "collector/snapshot/name_writer.h"
#include "proto/write/trace_writer.h"
#include "tests/support/memory_file.h"

namespace tidemark {

inline constexpr uint64_t kMiB = 1 << 20;

// One process of a trace.
class Story {
 public:
  Story(TraceWriter& writer, uint32_t process, int64_t rank = -1, uint64_t world = 0,
        uint64_t card_bytes = uint64_t{16} << 30)
      : writer_(writer), names_(writer) {
    writer_.begin_process(process);
    process_.rank = rank;
    process_.world_size = world;
    runs_on("node", 100 + process);
    Device d{};
    d.total_bytes = card_bytes;
    d.uuid = names_.string("GPU-1");
    writer_.append(d);
    now_ = kStartNs;
  }

  // Otherwise it has a host and a pid already.
  void runs_on(std::string_view host, uint64_t pid) {
    process_.host = names_.string(host);
    process_.pid = pid;
    writer_.append(process_);
  }

  // "function file:line", innermost first; native ones are in files that end with ".cpp".
  uint32_t stack(const std::vector<std::string>& frames) {
    uint32_t id = 0;
    for (auto text = frames.rbegin(); text != frames.rend(); ++text) {
      id = names_.stack(id, frame(*text));
    }
    return id;
  }
  // In the nn.Module of a path, as the recorder tells it.
  uint32_t stack_in(const std::string& module, const std::vector<std::string>& frames) {
    constexpr uint32_t kFirst = 4096;  // more than a story has others
    const uint32_t parent = stack({frames.begin() + 1, frames.end()});
    stack(frames);
    const std::tuple key{parent, frame(frames.front()), nn_module(module)};
    const auto [at, fresh] =
        module_stacks_.try_emplace(key, kFirst + static_cast<uint32_t>(module_stacks_.size()));
    if (fresh) {
      writer_.append(Stack{at->second, std::get<0>(key), std::get<1>(key), std::get<2>(key)});
    }
    return at->second;
  }
  uint32_t user(int line) { return stack({"work train.py:" + std::to_string(line)}); }
  uint32_t forward(int line, const std::string& caller = "train train.py:10") {
    return stack({"forward torch/nn/modules/op.py:" + std::to_string(line),
                  "_call_impl torch/nn/modules/module.py:1", caller});
  }
  // A node of autograd's graph, which a backward pass runs.
  uint32_t node(const std::string& name) {
    Frame f{};
    f.function = names_.string(name);
    f.kind = FrameKind::kAutograd;
    return names_.stack(0, names_.frame(f));
  }
  uint32_t optimizer(const std::string& function) {
    return stack({function + " torch/optim/adam.py:5", "step torch/optim/optimizer.py:9",
                  "train train.py:12"});
  }
  uint32_t setup() {
    return stack({"_apply torch/nn/modules/module.py:900", "cuda torch/nn/modules/module.py:1000",
                  "make train.py:2"});
  }

  // The device of the next events of the allocator: each needs streams of its own.
  void use_device(int64_t ordinal) { device_ = ordinal; }

  // Where the next segments and blocks belong.
  void on(uint64_t stream, uint32_t pool) {
    stream_ = stream;
    pool_ = pool;
  }

  uint64_t alloc(uint64_t bytes, uint32_t stack) {
    bytes = (bytes + 511) / 512 * 512;
    Holes& holes = holes_[{stream_, pool_}];
    auto best = holes.end();
    for (auto it = holes.begin(); it != holes.end(); ++it) {
      if (it->second >= bytes && (best == holes.end() || it->second < best->second)) best = it;
    }
    if (best == holes.end()) {
      const uint64_t size = segment_bytes_for(bytes);
      event(FrameworkAction::kSegmentAlloc, next_, size, stack);
      best = holes.emplace(next_, size).first;
      segments_[next_] = size;
      next_ += 2 * size;
    }
    const auto [address, size] = *best;
    holes.erase(best);
    if (size > bytes) holes[address + bytes] = size - bytes;
    live_[address] = {bytes, &holes};
    event(FrameworkAction::kAlloc, address, bytes, stack);
    return address;
  }

  // Freed by the program, but another stream still uses it.
  void begin_free(uint64_t address) {
    event(FrameworkAction::kFreeRequested, address, live_.at(address).first, 0);
  }

  void free(uint64_t address) {
    begin_free(address);
    finish_free(address);
  }
  void finish_free(uint64_t address) {
    const auto [bytes, home] = live_.at(address);
    Holes& holes = *home;
    live_.erase(address);
    event(FrameworkAction::kFreeCompleted, address, bytes, 0);
    auto it = holes.emplace(address, bytes).first;
    if (const auto next = std::next(it);
        next != holes.end() && it->first + it->second == next->first) {
      it->second += next->second;
      holes.erase(next);
    }
    if (it != holes.begin()) {
      const auto before = std::prev(it);
      if (before->first + before->second == it->first) {
        before->second += it->second;
        holes.erase(it);
      }
    }
  }

  // Time in which nothing is allocated.
  void wait(int64_t ns) { tick(ns); }

  void empty_cache(uint32_t stack) {
    for (auto& [home, holes] : holes_) {
      for (auto it = segments_.begin(); it != segments_.end();) {
        const auto hole = holes.find(it->first);
        if (hole == holes.end() || hole->second != it->second) {
          ++it;
          continue;
        }
        event(FrameworkAction::kSegmentFree, it->first, it->second, stack);
        holes.erase(hole);
        it = segments_.erase(it);
      }
    }
  }

  void run_out(uint64_t bytes, uint64_t device_free, uint32_t stack) {
    event(FrameworkAction::kOutOfMemory, device_free, bytes, stack);
  }

  // PyTorch's own record of it, with the limit that it named.
  void report_limit(uint64_t limit_bytes) {
    OutOfMemory oom{};
    oom.time_ns = tick();
    oom.limit_bytes = limit_bytes;
    writer_.append(oom);
  }

  void optimizer_mark() {
    for (const MarkPhase phase : {MarkPhase::kBegin, MarkPhase::kEnd}) {
      Mark m{};
      m.time_ns = tick();
      m.name = names_.string("Optimizer.step#Adam.step");
      m.phase = phase;
      m.kind = MarkKind::kAnnotation;
      writer_.append(m);
    }
  }

  void range(const std::string& name, MarkPhase phase) {
    Mark m{};
    m.time_ns = tick();
    m.name = names_.string(name);
    m.phase = phase;
    m.kind = MarkKind::kNvtx;
    writer_.append(m);
  }

  // As the recorder's own interface marks ranges: the end has the number and no name.
  void user_range(const std::string& name, MarkPhase phase, uint64_t number) {
    Mark m{};
    m.time_ns = tick();
    m.correlation = number;
    m.device = -1;
    if (phase == MarkPhase::kBegin) m.name = names_.string(name);
    m.phase = phase;
    m.kind = MarkKind::kUser;
    writer_.append(m);
  }

  void collective(std::string_view function, uint64_t bytes) {
    NcclOperation op{};
    op.start_ns = tick();
    op.communicator = 7;
    op.sequence = ++collectives_;
    op.group = collectives_;
    op.size_bytes = bytes;
    op.function = names_.string(function);
    op.kind = NcclKind::kCollective;
    writer_.append(op);
  }

  void segment_state(uint64_t address, uint64_t bytes, uint64_t pool) {
    SegmentState s{};
    s.time_ns = tick();
    s.address = address;
    s.size_bytes = bytes;
    s.pool = names_.pool(pool, 0);
    writer_.append(s);
  }

  // A point of the curve of the whole run, so long before the first event.
  void run_point(int64_t before_ns, uint64_t lowest, uint64_t highest, uint64_t steps) {
    Summary point{};
    point.time_ns = kStartNs - before_ns;
    point.allocated_bytes = lowest;
    point.reserved_bytes = highest;
    point.lowest_bytes = lowest;
    point.highest_bytes = highest;
    point.steps = steps;
    writer_.append(point);
  }

  // This is the last stretch of a longer run, of which run_point() tells.
  void kept_window(uint64_t earlier_errors = 0) {
    window_mark("kept window", -1, 0);
    if (earlier_errors != 0) window_mark("earlier errors", 0, earlier_errors);
  }
  void earlier_steps(uint64_t iterations, uint64_t of_optimizers) {
    window_mark("earlier iterations", -1, iterations);
    window_mark("earlier optimizer steps", -1, of_optimizers);
  }
  // As the recorder marks them.
  void step_mark(MarkKind kind) {
    Mark m{};
    m.time_ns = tick();
    m.device = -1;
    m.name = names_.string("step");
    m.phase = MarkPhase::kInstant;
    m.kind = kind;
    writer_.append(m);
  }

  // A block from before the recorded history, alive at its end, in a segment of its own.
  void older_block(uint64_t bytes, uint32_t stack = 0) {
    bytes = (bytes + 511) / 512 * 512;
    segment_state(older_next_, bytes, 0);
    BlockState b{};
    b.time_ns = now_;
    b.address = older_next_;
    b.size_bytes = bytes;
    b.requested_bytes = bytes;
    b.stack = stack;
    b.condition = BlockCondition::kAllocated;
    writer_.append(b);
    older_next_ += uint64_t{1} << 30;
  }

  // A block that is older than the history and is freed in it.
  void free_older(uint64_t bytes) {
    event(FrameworkAction::kFreeRequested, older_next_, bytes, 0);
    event(FrameworkAction::kFreeCompleted, older_next_, bytes, 0);
    older_next_ += uint64_t{1} << 30;
  }

  void driver_alloc(uint64_t bytes, std::string_view owner, MemoryKind kind, uint64_t address = 0,
                    int64_t device = 0, uint32_t stack = 0, uint32_t flags = 0) {
    DriverEvent e{};
    e.device = device;
    e.stack = stack;
    e.flags = flags;
    e.time_ns = tick();
    e.address = address != 0 ? address : driver_next_ += uint64_t{1} << 36;
    e.size_bytes = bytes;
    e.owner = names_.string(owner);
    e.operation = DriverOperation::kAllocate;
    e.kind = kind;
    writer_.append(e);
  }
  // New memory at these addresses, until they are unmapped.
  void map(uint64_t address, uint64_t bytes, std::string_view owner = "sleeper") {
    DriverEvent e{};
    e.time_ns = tick();
    e.handle = ++handle_;
    e.size_bytes = bytes;
    e.owner = names_.string(owner);
    e.kind = MemoryKind::kVirtual;
    e.operation = DriverOperation::kCreate;
    writer_.append(e);
    e.address = address;
    e.operation = DriverOperation::kMap;
    writer_.append(e);
    e.address = 0;
    e.operation = DriverOperation::kRelease;
    writer_.append(e);
  }
  void unmap(uint64_t address, uint64_t bytes) {
    DriverEvent e{};
    e.time_ns = tick();
    e.address = address;
    e.size_bytes = bytes;
    e.kind = MemoryKind::kVirtual;
    e.operation = DriverOperation::kUnmap;
    writer_.append(e);
  }
  void driver_refusal(uint64_t bytes, std::string_view owner = "program") {
    DriverEvent e{};
    e.time_ns = tick();
    e.size_bytes = bytes;
    e.owner = names_.string(owner);
    e.operation = DriverOperation::kAllocate;
    e.kind = MemoryKind::kDevice;
    e.result = 2;
    writer_.append(e);
  }

  void setting(std::string_view key, std::string_view value) {
    Setting row{};
    row.key = names_.string(key);
    row.value = names_.string(value);
    row.scope = SettingScope::kEnvironment;
    writer_.append(row);
  }

  // A further device of the process. `uuid`: of the card, which other processes may use too.
  void device(int64_t ordinal, std::string_view uuid, uint64_t total_bytes = uint64_t{16} << 30) {
    Device d{};
    d.ordinal = ordinal;
    d.total_bytes = total_bytes;
    d.uuid = names_.string(uuid);
    writer_.append(d);
  }

  void counter(CounterKind kind, uint64_t value, uint64_t subject = 0, int64_t device = 0) {
    Counter c{};
    c.device = device;
    c.time_ns = tick();
    c.value = value;
    c.subject = subject;
    c.kind = kind;
    writer_.append(c);
  }

  // What NVML lists at one instant: processes and their bytes.
  void counters_of_processes(const std::vector<std::pair<uint64_t, uint64_t>>& processes) {
    const int64_t time_ns = tick();
    for (const auto& [pid, bytes] : processes) {
      writer_.append(Counter{time_ns, bytes, pid, 0, CounterKind::kProcessUsed});
    }
  }

  // `module`: the path of the nn.Module that it belongs to; empty: not known.
  void tag(uint64_t address, Category category, const std::string& module = "") {
    TensorTag t{};
    t.time_ns = tick();
    t.address = address;
    t.category = category;
    if (!module.empty()) t.nn_module = nn_module(module);
    writer_.append(t);
  }

  int64_t tick(int64_t ns = 10'000) { return now_ += ns; }

 private:
  static constexpr int64_t kStartNs = 1'700'000'000'000'000'000;
  using Holes = std::map<uint64_t, uint64_t>;

  uint32_t frame(const std::string& text) {
    const size_t space = text.find(' ');
    const size_t colon = text.rfind(':');
    Frame f{};
    f.function = names_.string(text.substr(0, space));
    f.file = names_.string(text.substr(space + 1, colon - space - 1));
    f.line = std::stoll(text.substr(colon + 1));
    const bool native = text.find(".cpp:") != text.npos;
    f.kind = native ? FrameKind::kNative : FrameKind::kPython;
    return names_.frame(f);
  }

  uint32_t nn_module(const std::string& path) {
    if (modules_.empty()) writer_.append(NnModule{1, 0, names_.string("Model"), 1});
    const auto [at, fresh] = modules_.try_emplace(path, static_cast<uint32_t>(modules_.size() + 2));
    if (fresh) writer_.append(NnModule{at->second, names_.string(path), names_.string("Part"), 1});
    return at->second;
  }

  void window_mark(const std::string& name, int64_t device, uint64_t value) {
    Mark mark{};
    mark.time_ns = now_;
    mark.correlation = value;
    mark.device = device;
    mark.name = names_.string(name);
    mark.domain = names_.string("tidemark");
    mark.phase = MarkPhase::kInstant;
    mark.kind = MarkKind::kUser;
    writer_.append(mark);
  }

  void event(FrameworkAction action, uint64_t address, uint64_t size, uint32_t stack) {
    FrameworkEvent e{};
    e.time_ns = tick();
    e.action = action;
    e.address = address;
    e.size_bytes = size;
    e.stack = stack;
    e.device = device_;
    e.stream = stream_;
    e.pool = pool_;
    if (action == FrameworkAction::kAlloc) e.block_bytes = size;
    writer_.append(e);
  }

  TraceWriter& writer_;
  NameWriter names_;
  Process process_{};
  std::map<std::pair<uint64_t, uint32_t>, Holes> holes_;  // of a stream and pool
  std::map<uint64_t, uint64_t> segments_;
  std::map<std::string, uint32_t> modules_;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, uint32_t> module_stacks_;
  std::map<uint64_t, std::pair<uint64_t, Holes*>> live_;
  uint64_t next_ = uint64_t{1} << 40;
  uint64_t handle_ = 0;
  uint64_t older_next_ = uint64_t{1} << 43;
  uint64_t driver_next_ = uint64_t{1} << 44;
  int64_t now_ = 0;
  int64_t device_ = 0;
  uint64_t stream_ = 0;
  uint32_t pool_ = 0;
  uint64_t collectives_ = 0;
};

// A training loop: parameters, then steps of forward pass, backward pass and optimizer.
class Training {
 public:
  struct Shape {
    int layers = 6;
    uint64_t activation = 8 * kMiB;  // of each of the two operations in a layer
    uint64_t weight = 2 * kMiB;      // of a layer
    bool foreach_temporaries = false;
    bool marks = true;
  };

  Training(Story& story, const Shape& shape) : s_(story), shape_(shape) {
    for (int i = 0; i < shape_.layers; ++i) s_.alloc(shape_.weight, s_.setup());
  }

  std::vector<uint64_t> forward(uint64_t scale = 1,
                                const std::string& caller = "train train.py:10") {
    std::vector<uint64_t> kept;
    for (int i = 0; i < shape_.layers; ++i) {
      kept.push_back(s_.alloc(scale * shape_.activation, s_.forward(1, caller)));
      kept.push_back(s_.alloc(scale * shape_.activation, s_.forward(2, caller)));
      s_.free(s_.alloc(scale * shape_.activation, s_.forward(3, caller)));  // a temporary
      kept.push_back(s_.alloc(scale * shape_.activation / 2, s_.forward(4, caller)));
    }
    return kept;
  }

  // `keep`: the graph stays alive.
  void step(uint64_t scale = 1, bool keep = false) {
    const uint64_t input = s_.alloc(scale * 4 * kMiB, s_.user(8));
    std::vector<uint64_t> kept = forward(scale);
    std::vector<uint64_t> gradients;
    for (int i = shape_.layers; i-- > 0;) {
      const uint64_t passed = s_.alloc(scale * shape_.activation, 0);
      for (int k = 0; k < 3; ++k) {
        if (!keep) s_.free(kept.back());
        kept.pop_back();
      }
      gradients.push_back(s_.alloc(shape_.weight, 0));
      s_.free(passed);
    }
    if (shape_.marks) s_.optimizer_mark();
    if (!states_made_) {
      for (int i = 0; i < 2 * shape_.layers; ++i) {
        states_.push_back(s_.alloc(shape_.weight, s_.optimizer("_init_group")));
      }
      states_made_ = true;
    }
    std::vector<uint64_t> temporaries;
    for (int i = 0; i < (shape_.foreach_temporaries ? shape_.layers : 1); ++i) {
      temporaries.push_back(s_.alloc(shape_.weight, s_.optimizer("_multi_tensor_adam")));
    }
    for (const uint64_t t : temporaries) s_.free(t);
    for (const uint64_t g : gradients) s_.free(g);
    if (!keep) s_.free(input);
  }

  const Shape& shape() const { return shape_; }

 private:
  Story& s_;
  Shape shape_;
  std::vector<uint64_t> states_;
  bool states_made_ = false;
};

// Runs `tell` for each process and loads the resulting trace.
class Trace {
 public:
  template <typename Tell>
  explicit Trace(Tell&& tell, uint32_t processes = 1, bool ranked = false,
                 uint64_t card_bytes = uint64_t{16} << 30) {
    MemorySink sink;
    TraceWriter writer(sink);
    for (uint32_t p = 1; p <= processes; ++p) {
      Story story(writer, p, ranked ? static_cast<int64_t>(p) - 1 : -1, ranked ? processes : 0,
                  card_bytes);
      tell(story, p - 1);
    }
    writer.finish();
    Result<TraceReader> reader = open_bytes_as_trace(sink.bytes);
    readers_.push_back(std::move(*reader));
    model_ = std::move(*load_trace(readers_));
  }

  // A card that the program fills alone.
  template <typename Tell>
  static Trace on_card(uint64_t bytes, Tell&& tell) {
    return Trace(std::forward<Tell>(tell), 1, false, bytes);
  }

  const TraceModel& model() const { return model_; }
  Report report(const ReportOptions& options = {}) const { return *make_report(model_, options); }
  // Ids at warning or above, in alphabetical order.
  std::vector<std::string> alarms() const {
    std::vector<std::string> ids;
    const Report whole = report();
    for (const Finding& f : whole.findings) {
      if (f.severity != kInfo) ids.push_back(f.id);
    }
    std::sort(ids.begin(), ids.end());
    return ids;
  }
  // `card`: its size, if it is not that of the story.
  Finding finding(std::string_view id, uint64_t card = 0) const {
    ReportOptions options;
    options.card_bytes = card;
    const Report whole = report(options);
    for (const Finding& f : whole.findings) {
      if (f.id == id) return f;
    }
    return {};
  }

 private:
  std::vector<TraceReader> readers_;
  TraceModel model_;
};

}  // namespace tidemark
