// A trace that is still being written: the curves grow, and the view stays where it is.
#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "collector/snapshot/name_writer.h"
#include "proto/base/byte_sink.h"
#include "proto/write/trace_writer.h"
#include "tests/support/panel_fixture.h"
#include "viewer/model/trace/follower.h"

namespace tidemark::view {
namespace {

namespace fs = std::filesystem;

// A process that allocates one MiB per millisecond and is still running.
class GrowingTrace {
 public:
  explicit GrowingTrace(const std::string& path, int64_t rank = 0)
      : fd_(::open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600)),
        sink_(fd_),
        writer_(sink_) {
    writer_.begin_process(1);
    Process p{};
    p.start_ns = kStart;
    p.pid = 4711 + static_cast<uint64_t>(rank);
    p.rank = rank;
    p.world_size = 2;
    writer_.append(p);
    FrameworkEvent segment = event(FrameworkAction::kSegmentAlloc);
    segment.size_bytes = uint64_t{4096} << 20;
    writer_.append(segment);
  }
  ~GrowingTrace() { ::close(fd_); }

  void grow(uint32_t blocks) {
    for (uint32_t i = 0; i < blocks; ++i) {
      time_ += 1'000'000;
      FrameworkEvent e = event(FrameworkAction::kAlloc);
      e.size_bytes = 1 << 20;
      e.address += uint64_t{allocated_++} << 20;
      writer_.append(e);
    }
    writer_.flush();
  }
  void finish() { writer_.finish(); }
  uint32_t allocated() const { return allocated_; }

 private:
  FrameworkEvent event(FrameworkAction action) const {
    FrameworkEvent e{};
    e.time_ns = time_;
    e.action = action;
    e.address = uint64_t{1} << 32;
    return e;
  }

  static constexpr int64_t kStart = 1'700'000'000'000'000'000;
  int fd_;
  FdSink sink_;
  TraceWriter writer_;
  int64_t time_ = kStart;
  uint32_t allocated_ = 0;
};

class Follow : public Interaction {
 protected:
  Follow()
      : folder_(fs::temp_directory_path() / ("tidemark-follow-" + std::to_string(::getpid()))) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    path_ = (folder_ / "rank0.tmk").string();
  }
  ~Follow() override { fs::remove_all(folder_); }

  void load(const std::string& path) {
    shell_->open(path);
    while (shell_->loading()) pause();
    frame(3);
  }
  // Draws until this many events are shown; false when that does not happen.
  bool shows(uint64_t events) {
    for (int i = 0; i < 4000; ++i) {
      if (shell_->model() != nullptr && shell_->model()->events == events) return true;
      pause();
    }
    return false;
  }
  void pause() {
    frame(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }

  fs::path folder_;
  std::string path_;
};

TEST_F(Follow, ViewAndCursorStayAndTheEndMovesOn) {
  GrowingTrace trace(path_);
  trace.grow(1000);
  load(path_);
  ASSERT_NE(shell_->model(), nullptr);
  shell_->follow(true);
  ASSERT_TRUE(shows(1001));

  // In the middle: nothing moves.
  selection().view.show(200e6, 400e6);
  selection().set_time(model(), 0, 300e6);
  const uint32_t event = selection().cursor.event();
  trace.grow(500);
  ASSERT_TRUE(shows(1501));
  EXPECT_NEAR(selection().view.range().begin, 200e6, 1);
  EXPECT_NEAR(selection().view.range().end, 400e6, 1);
  EXPECT_EQ(selection().cursor.event(), event);
  EXPECT_EQ(selection().cursor.moment(model()).state.live.size(), 300U);

  // At the end: the view follows the end, at the same zoom.
  selection().view.show(1400e6, 1500e6);
  selection().view.pan(0.5);
  const double span = selection().view.range().span();
  const double ahead = selection().view.range().end - model().span_ns();
  ASSERT_GE(ahead, 0);
  trace.grow(500);
  ASSERT_TRUE(shows(2001));
  EXPECT_NEAR(selection().view.range().span(), span, 1);
  EXPECT_NEAR(selection().view.range().end - model().span_ns(), ahead, 1);

  // The whole run stays the whole run.
  selection().view.fit();
  trace.grow(100);
  trace.finish();
  ASSERT_TRUE(shows(2101));
  EXPECT_GE(selection().view.range().end, model().span_ns());
  EXPECT_LE(selection().view.range().begin, 0);
}

// What is drawn, not only what is read: the curve rises with every reload of the file.
TEST_F(Follow, TheCurveGrows) {
  GrowingTrace trace(path_);
  trace.grow(200);
  load(path_);
  ASSERT_NE(shell_->model(), nullptr);
  shell_->follow(true);
  const auto drawn_end = [&] {
    frame(2);
    const LaneCurves& curves = shell_->panels().timeline.drawn(0).own;
    const std::vector<double>& ys = curves.ys(Curve::kAllocated);
    return ys.empty() ? std::pair(0.0, 0.0)
                      : std::pair(curves.xs(Curve::kAllocated).back(), ys.back());
  };
  ASSERT_TRUE(shows(201));
  EXPECT_EQ(drawn_end().second, 200.0 * (1 << 20));
  for (uint32_t blocks = 200; blocks < 800;) {
    trace.grow(200);
    blocks += 200;
    ASSERT_TRUE(shows(blocks + 1));
    EXPECT_EQ(drawn_end().second, blocks * static_cast<double>(1 << 20));
    EXPECT_NEAR(drawn_end().first, blocks * 1e6, 1e3);
    EXPECT_GE(selection().view.range().end, blocks * 1e6) << "the whole run stays in view";
  }
}

TEST_F(Follow, ADirectoryGainsARank) {
  GrowingTrace first(path_);
  first.grow(50);
  load(folder_.string());
  ASSERT_NE(shell_->model(), nullptr);
  const size_t processes = model().trace.processes.size();
  shell_->follow(true);
  GrowingTrace second((folder_ / "rank1.tmk").string(), 1);
  second.grow(70);
  for (int i = 0; i < 4000 && model().trace.processes.size() == processes; ++i) pause();
  EXPECT_EQ(model().trace.processes.size(), processes + 1);
}

TEST_F(Follow, WithoutItNothingIsReadAgain) {
  GrowingTrace trace(path_);
  trace.grow(10);
  load(path_);
  trace.grow(10);
  Follower follower;
  const auto now = Follower::Clock::now();
  EXPECT_FALSE(follower.changed(now)) << "watches nothing";
  follower.watch(path_);
  EXPECT_TRUE(follower.changed(now)) << "it may have grown since it was read";
  EXPECT_FALSE(follower.changed(now + 2 * Follower::kPeriod));
  trace.grow(10);
  EXPECT_FALSE(follower.changed(now + 2 * Follower::kPeriod)) << "not twice in a period";
  EXPECT_TRUE(follower.changed(now + 4 * Follower::kPeriod));
  follower.was_read(now + 4 * Follower::kPeriod, 5 * Follower::kPeriod);
  trace.grow(10);
  EXPECT_FALSE(follower.changed(now + 9 * Follower::kPeriod)) << "reading took long";
  EXPECT_TRUE(follower.changed(now + 20 * Follower::kPeriod));
  frame(5);
  EXPECT_EQ(model().events, 11U);
}

}  // namespace
}  // namespace tidemark::view
