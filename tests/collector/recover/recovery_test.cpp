#include "collector/recover/recovery.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>
#include <thread>

#include <gtest/gtest.h>

#include "collector/recover/trace_file.h"
#include "proto/write/trace_writer.h"
#include "tests/support/ring_builder.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/trace_contents.h"

namespace tidemark::test {
namespace {

std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_all(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

FrameworkEvent event(uint64_t number) {
  FrameworkEvent row{};
  row.time_ns = static_cast<int64_t>(1000 + number);
  row.address = number;
  row.action = FrameworkAction::kAlloc;
  return row;
}

uint64_t start_ticks_of(pid_t pid) {
  const std::string line = first_line("/proc/" + std::to_string(pid) + "/stat");
  std::istringstream fields(line.substr(line.rfind(')') + 2));
  std::string field;
  for (int number = 3; number <= 22; ++number) fields >> field;
  return std::stoull(field);
}

void set_owner(ring::RingHeader& header, pid_t pid, uint64_t ticks) {
  header.pid = static_cast<uint32_t>(pid);
  header.process_start_ticks = ticks;
  struct stat info {};
  ASSERT_EQ(::stat("/proc/self/ns/pid", &info), 0);
  header.pid_namespace = info.st_ino;
  const std::string boot = first_line("/proc/sys/kernel/random/boot_id");
  boot.copy(header.boot_id, sizeof header.boot_id - 1);
  ::gethostname(header.host, sizeof header.host - 1);
  header.heartbeat_ns = 1'000'000;
}

pid_t dead_pid() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  return child;
}

// A trace of events 0 … 9 with its last checkpoint, and a ring with 10 … 14.
class RecoveryTest : public testing::Test {
 protected:
  RecoveryTest() : trace_(directory_ / "host-1.tmk"), ring_(trace_ + ".ring") {
    const int fd = ::open(trace_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    FdSink sink(fd);
    TraceWriter writer(sink);
    builder_.open(0, 0);
    for (uint64_t i = 0; i < 10; ++i) {
      writer.append(event(i));
      builder_.put(0, event(i));
    }
    writer.flush();
    ::close(fd);
    builder_.set_checkpoint(writer.bytes_written());
    set_owner(builder_.header(), dead_pid(), 12345);
    builder_.put_string(0, 1, "a name");
    for (uint64_t i = 10; i < 15; ++i) builder_.put(0, event(i));
  }

  void expect_events(uint64_t count) {
    const TraceContents trace = read_trace(trace_);
    ASSERT_EQ(trace.framework_events.size(), count);
    for (uint64_t i = 0; i < count; ++i) EXPECT_EQ(trace.framework_events[i].address, i);
  }
  RecoveryReport recover(RecoveryBy by = RecoveryBy::kReader) {
    const Result<RecoveryReport> report = recover_file(trace_, by);
    if (report) return *report;
    ADD_FAILURE() << report.error().message;
    return {};
  }
  bool has_ring() const { return std::filesystem::exists(ring_); }

  ScratchDirectory directory_;
  std::string trace_;
  std::string ring_;
  RingBuilder builder_;
};

TEST_F(RecoveryTest, WithoutARingNothingHappens) {
  const std::string before = read_all(trace_);
  EXPECT_EQ(recover().outcome, RecoveryOutcome::kNothingToDo);
  EXPECT_EQ(read_all(trace_), before);
}

TEST_F(RecoveryTest, AppendsWhatTheTraceLacks) {
  builder_.write(ring_);
  const RecoveryReport report = recover();
  EXPECT_EQ(report.outcome, RecoveryOutcome::kRecovered);
  EXPECT_EQ(report.rows, 6U);
  EXPECT_FALSE(has_ring());
  expect_events(15);
  const TraceContents trace = read_trace(trace_);
  EXPECT_EQ(trace.strings.at(1), "a name");
  EXPECT_EQ(trace.health_sum(HealthKind::kRecovered), 6U);
  EXPECT_FALSE(trace.damage.any() || trace.damage.unfinished);
  EXPECT_EQ(recover().outcome, RecoveryOutcome::kNothingToDo);
}

TEST_F(RecoveryTest, AcceptsTheNameOfTheRing) {
  builder_.write(ring_);
  const Result<RecoveryReport> report = recover_file(ring_, RecoveryBy::kReader);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->path, trace_);
  EXPECT_EQ(report->outcome, RecoveryOutcome::kRecovered);
}

TEST_F(RecoveryTest, CutsWhatWasWrittenAfterTheCheckpoint) {
  builder_.write(ring_);
  std::ofstream(trace_, std::ios::app | std::ios::binary) << std::string(1000, 'x');
  EXPECT_EQ(recover().cut_bytes, 1000U);
  expect_events(15);
}

TEST_F(RecoveryTest, RepeatedAfterAnInterruptionGivesTheSame) {
  builder_.write(ring_);
  const std::string ring = read_all(ring_);
  recover();
  const std::string whole = read_all(trace_);
  // As if it had been killed at the end, before the ring was removed, and in the middle.
  for (const size_t size : {whole.size(), whole.size() - 40}) {
    write_all(ring_, ring);
    write_all(trace_, whole.substr(0, size));
    EXPECT_EQ(recover().outcome, RecoveryOutcome::kRecovered);
    EXPECT_EQ(read_all(trace_), whole);
  }
}

TEST_F(RecoveryTest, ChunkOfALaterGenerationIsTakenWhole) {
  builder_.open(0, 7);  // emptied by a checkpoint and reused
  builder_.set_checkpoint(builder_.checkpoint().file_bytes);
  builder_.open(0, 9);
  builder_.put(0, event(10));
  builder_.open(1, 8);
  builder_.write(ring_);
  EXPECT_EQ(recover().rows, 1U);
  expect_events(11);
}

TEST_F(RecoveryTest, ChunksComeInTheOrderTheyWereClaimed) {
  builder_.open(2, 1);
  for (uint64_t i = 15; i < 18; ++i) builder_.put(2, event(i));
  builder_.open(1, 2);
  for (uint64_t i = 18; i < 21; ++i) builder_.put(1, event(i));
  builder_.write(ring_);
  recover();
  expect_events(21);
}

TEST_F(RecoveryTest, LossesAreCarriedOver) {
  builder_.header().dropped[static_cast<size_t>(BlockKind::kKernels)] = 100;
  builder_.checkpoint().dropped_reported[static_cast<size_t>(BlockKind::kKernels)] = 60;
  builder_.header().write_error = ENOSPC;
  builder_.write(ring_);
  EXPECT_EQ(recover().dropped, 40U);
  const TraceContents trace = read_trace(trace_);
  EXPECT_EQ(trace.health_sum(HealthKind::kEventsDropped), 40U);
  EXPECT_EQ(trace.health_rows(HealthKind::kBytesUnwritten), 1U);
}

TEST_F(RecoveryTest, LeavesALivingProcessAlone) {
  set_owner(builder_.header(), ::getpid(), start_ticks_of(::getpid()));
  builder_.write(ring_);
  const std::string before = read_all(trace_);
  EXPECT_EQ(recover().outcome, RecoveryOutcome::kStillRunning);
  EXPECT_EQ(read_all(trace_), before);
  EXPECT_TRUE(has_ring());
}

TEST_F(RecoveryTest, SamePidOfALaterProcessIsNotTheOwner) {
  set_owner(builder_.header(), ::getpid(), start_ticks_of(::getpid()) - 1);
  builder_.write(ring_);
  EXPECT_EQ(recover().outcome, RecoveryOutcome::kRecovered);
}

TEST_F(RecoveryTest, ZombieIsDead) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  set_owner(builder_.header(), child, start_ticks_of(child));
  builder_.write(ring_);
  EXPECT_EQ(recover().outcome, RecoveryOutcome::kRecovered);
  ::waitpid(child, nullptr, 0);
}

TEST_F(RecoveryTest, LockOfItsWriterKeepsARing) {
  builder_.write(ring_);
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t writer = ::fork();
  if (writer == 0) {
    const int fd = ::open(ring_.c_str(), O_RDWR);
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_len = 1;
    const char ok = ::fcntl(fd, F_SETLK, &lock) == 0 ? 1 : 0;
    if (::write(ready[1], &ok, 1) != 1) ::_exit(1);
    while (true) ::pause();
  }
  char ok = 0;
  ASSERT_EQ(::read(ready[0], &ok, 1), 1);
  ASSERT_EQ(ok, 1);
  EXPECT_EQ(recover().outcome, RecoveryOutcome::kStillRunning);
  ::kill(writer, SIGKILL);
  ::waitpid(writer, nullptr, 0);
  EXPECT_EQ(recover().outcome, RecoveryOutcome::kRecovered);
  ::close(ready[0]);
  ::close(ready[1]);
}

// Locks do not work on every file system, so nothing but its silence tells about such a process.
TEST_F(RecoveryTest, ReadersLeaveProcessesOfOtherMachines) {
  ring::RingHeader& header = builder_.header();
  std::strcpy(header.boot_id, "another");
  for (const char* host : {"another", ""}) {  // some clusters give all machines the same name
    std::strcpy(header.host, host);
    if (*host == '\0') ::gethostname(header.host, sizeof header.host - 1);
    builder_.write(ring_);
    const RecoveryReport report = recover(RecoveryBy::kReader);
    EXPECT_EQ(report.outcome, RecoveryOutcome::kElsewhere);
    EXPECT_EQ(report.host, header.host);
  }
  std::vector<std::string> notes;
  EXPECT_TRUE(open_trace_file(trace_, notes));
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_NE(notes[0].find("tidemark recover"), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(ring_));
}

TEST_F(RecoveryTest, UserRecoversSilentProcessesOfOtherMachines) {
  ring::RingHeader& header = builder_.header();
  std::strcpy(header.boot_id, "another");
  std::strcpy(header.host, "another");
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  header.heartbeat_ns = static_cast<int64_t>(now.tv_sec) * 1'000'000'000;
  builder_.write(ring_);
  EXPECT_EQ(recover(RecoveryBy::kUser).outcome, RecoveryOutcome::kElsewhere);
  header.heartbeat_ns -= 3'600'000'000'000;
  builder_.write(ring_);
  EXPECT_EQ(recover(RecoveryBy::kUser).outcome, RecoveryOutcome::kRecovered);
}

TEST_F(RecoveryTest, ManyAtOnceDoItOnce) {
  builder_.write(ring_);
  std::vector<std::thread> threads;
  std::atomic<int> recovered{0};
  std::atomic<int> nothing{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const Result<RecoveryReport> report = recover_file(trace_, RecoveryBy::kReader);
      ASSERT_TRUE(report) << report.error().message;
      ++(report->outcome == RecoveryOutcome::kRecovered ? recovered : nothing);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(recovered, 1);
  EXPECT_EQ(nothing, 7);
  expect_events(15);
}

TEST_F(RecoveryTest, RingOfAProcessThatDiedAtItsStartIsRemoved) {
  builder_.header().state = static_cast<uint32_t>(ring::RingState::kStarting);
  builder_.write(ring_);
  std::filesystem::resize_file(ring_, ring::kHeaderBytes);
  const std::string before = read_all(trace_);
  EXPECT_EQ(recover().outcome, RecoveryOutcome::kRecovered);
  EXPECT_FALSE(has_ring());
  EXPECT_EQ(read_all(trace_), before);
}

TEST_F(RecoveryTest, TraceOfAProcessThatDiedAtItsStartIsRemovedWhenEmpty) {
  builder_.header().state = static_cast<uint32_t>(ring::RingState::kStarting);
  for (const uintmax_t size : {0U, 16U}) {
    builder_.write(ring_);
    write_all(trace_, "");
    std::filesystem::resize_file(trace_, size);
    EXPECT_EQ(recover().outcome, RecoveryOutcome::kRecovered);
    EXPECT_FALSE(has_ring() || std::filesystem::exists(trace_));
  }
}

TEST_F(RecoveryTest, MissingTraceIsMadeFromTheRing) {
  builder_.write(ring_);
  std::filesystem::remove(trace_);
  const RecoveryReport report = recover();
  EXPECT_EQ(report.missing_bytes, builder_.checkpoint().file_bytes);
  const TraceContents trace = read_trace(trace_);
  EXPECT_EQ(trace.framework_events.size(), 5U);
  EXPECT_EQ(trace.health_sum(HealthKind::kInputSkipped), report.missing_bytes);
}

TEST_F(RecoveryTest, DamagedTraceKeepsItsDamageAndGetsTheRest) {
  builder_.write(ring_);
  std::string bytes = read_all(trace_);
  bytes[20] = static_cast<char>(bytes[20] ^ 1);  // in the header of its only frame
  write_all(trace_, bytes);
  EXPECT_EQ(recover().outcome, RecoveryOutcome::kRecovered);
  const TraceContents trace = read_trace(trace_);
  EXPECT_EQ(trace.framework_events.size(), 5U);
  EXPECT_TRUE(trace.damage.any() && trace.damage.unfinished);
}

TEST_F(RecoveryTest, DamagedChunkLosesOnlyItsRest) {
  builder_.open(1, 1);
  builder_.put(1, event(15));
  builder_.put(1, event(99));
  builder_.write(ring_);
  std::string bytes = read_all(ring_);
  const size_t second = builder_.header().chunks_offset + builder_.header().chunk_bytes +
                        ring::record_bytes(sizeof(FrameworkEvent));
  bytes[second] = 55;  // an unknown kind
  write_all(ring_, bytes);
  EXPECT_EQ(recover().damaged_chunks, 1U);
  expect_events(16);
  EXPECT_EQ(read_trace(trace_).health_sum(HealthKind::kInputSkipped), 1U);
}

TEST_F(RecoveryTest, RefusesWhatItDoesNotUnderstand) {
  const std::vector<std::pair<const char*, std::function<void(RingBuilder&)>>> cases = {
      {"magic", [](RingBuilder& b) { b.header().magic = 1; }},
      {"version", [](RingBuilder& b) { b.header().version = 9; }},
      {"layout", [](RingBuilder& b) { b.header().layout ^= 1; }},
      {"no chunks", [](RingBuilder& b) { b.header().chunk_count = 0; }},
      {"chunk count", [](RingBuilder& b) { b.header().chunk_count = UINT32_MAX; }},
      {"chunk size", [](RingBuilder& b) { b.header().chunk_bytes = UINT32_MAX; }},
      {"total", [](RingBuilder& b) { b.header().total_bytes = UINT64_MAX; }},
      {"shorter than it says", [](RingBuilder& b) { b.bytes().resize(b.bytes().size() - 1); }},
      {"short", [](RingBuilder& b) { b.bytes().resize(4096 + 100); }},
  };
  for (const auto& [what, change] : cases) {
    SCOPED_TRACE(what);
    RingBuilder changed = builder_;
    changed.write(ring_);  // completes the checksum
    const uint64_t bytes = changed.bytes().size();
    changed.checkpoint().crc = ring::checkpoint_crc(changed.checkpoint(), &changed.released(0), 4);
    change(changed);
    ASSERT_LE(changed.bytes().size(), bytes);
    write_all(ring_, std::string(changed.bytes().begin(), changed.bytes().end()));
    const std::string before = read_all(trace_);
    EXPECT_FALSE(recover_file(trace_, RecoveryBy::kReader));
    EXPECT_EQ(read_all(trace_), before);
    EXPECT_TRUE(has_ring());
  }
}

TEST_F(RecoveryTest, InvalidOrDamagedActiveSlotIsRefused) {
  builder_.write(ring_);
  for (const size_t offset :
       {offsetof(ring::RingHeader, active_slot), offsetof(ring::RingHeader, slots)}) {
    std::string bytes = read_all(ring_);
    bytes[offset] = static_cast<char>(bytes[offset] ^ 0x40);
    write_all(ring_, bytes);
    EXPECT_FALSE(recover_file(trace_, RecoveryBy::kReader));
    builder_.write(ring_);
  }
}

// For any bytes of a ring: a result, no crash, and a trace that can still be read.
TEST_F(RecoveryTest, SurvivesRandomDamage) {
  builder_.open(1, 1);
  for (uint64_t i = 0; i < 50; ++i) builder_.put(1, event(i));
  builder_.put_string(1, 2, std::string(1000, 's'));
  builder_.write(ring_);
  const std::string sound = read_all(ring_);
  const std::string trace = read_all(trace_);
  std::mt19937 random(7);
  const auto draw = [&](size_t below) { return static_cast<size_t>(random()) % below; };
  const size_t used = builder_.header().chunks_offset + 2 * builder_.header().chunk_bytes;
  for (int i = 0; i < 1000; ++i) {
    std::string bytes = sound;
    for (size_t n = 1 + draw(8); n > 0; --n) {
      // Mostly where there is data: header, controls, the first records of each chunk.
      const size_t places[] = {draw(1200), 4096 + draw(256), draw(used),
                               builder_.header().chunks_offset + draw(2000),
                               builder_.header().chunks_offset + 16384 + draw(8000)};
      bytes[places[draw(5)]] = static_cast<char>(random());
    }
    write_all(ring_, bytes);
    write_all(trace_, trace);
    const Result<RecoveryReport> report = recover_file(trace_, RecoveryBy::kReader);
    if (report && report->outcome == RecoveryOutcome::kRecovered) {
      EXPECT_TRUE(TraceReader::open(trace_));
    }
  }
}

TEST_F(RecoveryTest, FullDiskLeavesRingAndTraceAsTheyWere) {
  builder_.write(ring_);
  const std::string before = read_all(trace_);
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{before.size() + 10, RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    ::_exit(recover_file(trace_, RecoveryBy::kReader).ok() ? 1 : 0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "must be an error";
  EXPECT_EQ(read_all(trace_), before);
  ASSERT_TRUE(has_ring());
  EXPECT_EQ(recover().outcome, RecoveryOutcome::kRecovered);
  expect_events(15);
}

TEST_F(RecoveryTest, LinksElsewhereAreNotFollowed) {
  const std::string elsewhere = directory_ / "elsewhere";
  builder_.write(elsewhere);
  std::filesystem::create_symlink(elsewhere, ring_);
  EXPECT_FALSE(recover_file(trace_, RecoveryBy::kReader));
  EXPECT_TRUE(std::filesystem::exists(elsewhere));
}

TEST_F(RecoveryTest, DirectoryGoesOnAfterAFailure) {
  builder_.write(ring_);
  write_all(directory_ / "aaa.tmk.ring", "nonsense");
  const Result<DirectoryRecovery> all = recover_directory(directory_.path(), RecoveryBy::kReader);
  ASSERT_TRUE(all);
  EXPECT_EQ(all->files.size(), 1U);
  ASSERT_EQ(all->failures.size(), 1U);
  EXPECT_NE(all->failures[0].message.find("aaa.tmk.ring"), std::string::npos);
  EXPECT_FALSE(recover_directory(directory_ / "nowhere", RecoveryBy::kReader));
}

}  // namespace
}  // namespace tidemark::test
