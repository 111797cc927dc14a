// A trace opened through its index equals the replayed one: an identical report, and the same state
// at any event.
#include "analysis/load/trace_index.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "analysis/history/state_index.h"
#include "analysis/load/index_stamp.h"
#include "analysis/report/report.h"
#include "collector/trace_source.h"
#include "export/report/report_json.h"
#include "proto/base/byte_sink.h"
#include "proto/base/output_file.h"
#include "proto/write/trace_writer.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/toy_allocator.h"

namespace tidemark::test {
namespace {

namespace fs = std::filesystem;

IndexOptions options_in(const std::string& directory) {
  IndexOptions options;
  options.directory = directory;
  options.from_events = 1;
  return options;
}

TraceModel loaded(const TraceSource& source, const IndexOptions& options) {
  Result<TraceModel> model = load_trace(source.readers, {}, options);
  EXPECT_TRUE(model.ok()) << model.error().message;
  model->indexing.clear();  // waits until it is on disk
  return std::move(*model);
}

std::string json_of(const TraceModel& model) {
  ReportOptions options;
  options.curve_points = 50;
  const Result<Report> report = make_report(model, options);
  return report.ok() ? report_as_json(*report) : report.error().message;
}

bool same_state(const MemoryState& a, const MemoryState& b) {
  const auto same_range = [](const SegmentRange& x, const SegmentRange& y) {
    return x.address == y.address && x.size_bytes == y.size_bytes && x.stream == y.stream &&
           x.change == y.change && x.expandable == y.expandable;
  };
  const auto same_hole = [](const Hole& x, const Hole& y) {
    return x.address == y.address && x.size_bytes == y.size_bytes && x.segment == y.segment;
  };
  return a.event == b.event && a.time_ns == b.time_ns && a.totals == b.totals && a.live == b.live &&
         std::equal(a.segments.begin(), a.segments.end(), b.segments.begin(), b.segments.end(),
                    same_range) &&
         std::equal(a.holes.begin(), a.holes.end(), b.holes.begin(), b.holes.end(), same_hole);
}

bool same_allocation(const Allocation& a, const Allocation& b) {
  return a.address == b.address && a.block_bytes == b.block_bytes &&
         a.requested_bytes == b.requested_bytes && a.stream == b.stream &&
         a.birth_ns() == b.birth_ns() && a.death_ns() == b.death_ns() && a.birth == b.birth &&
         a.release == b.release && a.death == b.death && a.stack == b.stack &&
         a.compile_context == b.compile_context && a.metadata == b.metadata && a.pool == b.pool &&
         a.category == b.category && a.seeded == b.seeded;
}

void expect_same(const TraceModel& got, const TraceModel& expected) {
  EXPECT_EQ(json_of(got), json_of(expected));
  ASSERT_EQ(got.processes.size(), expected.processes.size());
  EXPECT_EQ(got.damage.blocks, expected.damage.blocks);
  EXPECT_EQ(got.damage.rows, expected.damage.rows);
  std::mt19937 random(5);
  for (size_t p = 0; p < got.processes.size(); ++p) {
    ASSERT_EQ(got.processes[p].framework.size(), expected.processes[p].framework.size());
    for (size_t d = 0; d < got.processes[p].framework.size(); ++d) {
      const AllocationHistory& a = got.processes[p].framework[d];
      const AllocationHistory& b = expected.processes[p].framework[d];
      ASSERT_EQ(a.event_count(), b.event_count());
      ASSERT_EQ(a.allocations.size(), b.allocations.size());
      for (size_t i = 0; i < a.allocations.size(); ++i) {
        ASSERT_TRUE(same_allocation(a.allocations[i], b.allocations[i])) << i;
      }
      for (int i = 0; i < 20 && a.event_count() != 0; ++i) {
        const auto event = static_cast<uint32_t>(random() % a.event_count());
        ASSERT_TRUE(same_state(state_after(a, event), state_after(b, event))) << event;
      }
    }
  }
}

size_t entries(const std::string& directory) {
  std::error_code error;
  size_t count = 0;
  for (auto it = fs::directory_iterator(directory, error); it != fs::directory_iterator(); ++it) {
    ++count;
  }
  return count;
}

// All recorded runs.
class Recorded : public testing::TestWithParam<std::string> {};

TEST_P(Recorded, AnswersAreTheSameByIndex) {
  const std::string root = std::string(TIDEMARK_TEST_DATA) + "/../../samples/traces/" + GetParam();
  const ScratchDirectory cache;
  const Result<TraceSource> source = open_trace(root);
  ASSERT_TRUE(source.ok()) << source.error().message;
  const TraceModel plain = loaded(*source, {});
  const TraceModel first = loaded(*source, options_in(cache / "index"));
  expect_same(first, plain);
  size_t indexed = 0;
  for (const TraceReader& reader : source->readers) {
    indexed += TraceIndex::open(reader, options_in(cache / "index")) ? 1U : 0U;
  }
  EXPECT_EQ(entries(cache / "index"), indexed);
  size_t with_events = 0;
  for (const ProcessModel& process : plain.processes) {
    with_events += process.framework.empty() ? 0U : 1U;
  }
  EXPECT_EQ(indexed != 0, with_events != 0);
  expect_same(loaded(*source, options_in(cache / "index")), plain);
}

INSTANTIATE_TEST_SUITE_P(Samples, Recorded,
                         testing::Values("all_kinds", "leak", "run_out", "ranks/ddp2",
                                         "ranks/guilty4", "torch/compiled.tier2.tmk",
                                         "torch/expandable.tier1.tmk", "torch/expandable.tier2.tmk",
                                         "torch/graphs.tier2.tmk", "torch/out_of_memory.tier2.tmk"),
                         [](const auto& of) {
                           std::string name = of.param;
                           for (char& c : name) c = std::isalnum(c) != 0 ? c : '_';
                           return name;
                         });

class Index : public testing::Test {
 protected:
  // Beyond 16,384 events there are several keyframes.
  std::string write_trace(uint64_t seed, size_t events = 9'000) {
    const std::string path = folder_ / ("run" + std::to_string(seed) + ".tmk");
    Result<OutputFile> file = OutputFile::create(path);
    FdSink sink(file->fd());
    TraceWriter writer(sink);
    Process process{};
    process.pid = seed;
    process.rank = -1;
    process.source = Source::kTorchSnapshot;
    writer.append(process);
    ToyAllocator toy(AllocatorRules(), seed);
    while (toy.events.size() < events) toy.random_step();
    for (const FrameworkEvent& event : toy.events) writer.append(event);
    EXPECT_TRUE(writer.finish());
    EXPECT_TRUE(file->commit().ok());
    return path;
  }
  std::string only_index() const {
    return fs::directory_iterator(options_.directory)->path().string();
  }
  bool is_indexed(const std::string& path) const {
    const Result<TraceSource> source = open_trace(path);
    return TraceIndex::open(source->readers[0], options_).has_value();
  }
  TraceModel load(const std::string& path, const IndexOptions& options) {
    const Result<TraceSource> source = open_trace(path);
    return loaded(*source, options);
  }

  ScratchDirectory folder_;
  IndexOptions options_ = options_in(folder_ / "cache/index");
};

TEST_F(Index, RandomHistoriesAreTheSame) {
  for (const uint64_t seed : {uint64_t{31}, uint64_t{32}}) {
    const std::string path = write_trace(seed, 20'000);
    const TraceModel plain = load(path, {});
    EXPECT_GT(plain.processes[0].framework[0].states.size(), 2U);
    expect_same(load(path, options_), plain);
    EXPECT_TRUE(is_indexed(path));
    expect_same(load(path, options_), plain);
  }
  EXPECT_EQ(entries(options_.directory), 2U);
}

TEST_F(Index, SmallTracesAreLeftAlone) {
  const std::string path = write_trace(33, 3'000);
  options_.from_events = 100'000;
  load(path, options_);
  EXPECT_EQ(entries(options_.directory), 0U);
}

TEST_F(Index, DamagedOnesAreMadeAgain) {
  const std::string path = write_trace(34);
  const TraceModel plain = load(path, {});
  load(path, options_);
  const auto damage = [&](const std::string& what, const std::function<void(std::string)>& act) {
    for (const auto& file : fs::directory_iterator(only_index())) {
      if (file.path().filename().string().find(what) != std::string::npos) act(file.path());
    }
    EXPECT_FALSE(is_indexed(path)) << what;
    expect_same(load(path, options_), plain);
    EXPECT_TRUE(is_indexed(path)) << what;
    EXPECT_EQ(entries(options_.directory), 1U);
  };
  const auto flip = [](const std::string& file) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(20);
    const int byte = stream.get();
    stream.seekp(20);
    stream.put(static_cast<char>(byte ^ 0x40));
  };
  damage("manifest", flip);
  damage("manifest", [](const std::string& file) { fs::resize_file(file, 3); });
  damage("manifest", [](const std::string& file) { fs::remove(file); });
  damage("subject", flip);
  damage("flags", flip);
  damage("time", [](const std::string& file) { fs::resize_file(file, fs::file_size(file) - 8); });
  damage("change", [](const std::string& file) { fs::remove(file); });
}

// Columns of more than the eight pages that were once the only ones checked.
TEST_F(Index, AnyFlippedByteAndAnyLostTailIsNoticed) {
  const std::string path = write_trace(42, 20'000);
  load(path, options_);
  ASSERT_TRUE(is_indexed(path));
  std::vector<std::string> files;
  for (const auto& file : fs::directory_iterator(only_index())) {
    if (file.path().filename() != kIndexStamp && file.file_size() != 0) {
      files.push_back(file.path());
    }
  }
  std::mt19937_64 random(6);
  for (int i = 0; i < 200; ++i) {
    const std::string& file = files[random() % files.size()];
    const uint64_t size = fs::file_size(file);
    const uint64_t at = random() % size;
    std::string bytes(size, 0);
    std::ifstream(file, std::ios::binary).read(bytes.data(), static_cast<std::streamsize>(size));
    std::string damaged = i % 4 == 0 ? bytes.substr(0, at) : bytes;
    if (i % 4 != 0)
      damaged[at] =
          static_cast<char>(static_cast<unsigned char>(damaged[at]) ^ (1U << random() % 8));
    const auto write = [&](const std::string& text) {
      std::ofstream(file, std::ios::binary | std::ios::trunc) << text;
    };
    write(damaged);
    EXPECT_FALSE(is_indexed(path)) << file << " at " << at;
    write(bytes);
    ASSERT_TRUE(is_indexed(path));
  }
}

TEST_F(Index, ChecksumsAreComparedAgainAfterAnyChange) {
  const std::string path = write_trace(43);
  load(path, options_);
  const std::string index = only_index();
  EXPECT_FALSE(has_valid_stamp(index));  // never opened
  ASSERT_TRUE(is_indexed(path));
  // A stamp counts once the files are older than it.
  while (!has_valid_stamp(index)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    ASSERT_TRUE(is_indexed(path));
  }
  for (const auto& file : fs::directory_iterator(index)) {
    if (file.path().filename().string().find("subject") == std::string::npos) continue;
    std::fstream stream(file.path(), std::ios::in | std::ios::out | std::ios::binary);
    const int byte = stream.get();
    stream.seekp(0);
    stream.put(static_cast<char>(byte ^ 1));
  }
  EXPECT_FALSE(has_valid_stamp(index));
  EXPECT_FALSE(is_indexed(path));
}

TEST_F(Index, AnotherTraceUnderTheSameNameHasItsOwn) {
  const std::string path = write_trace(35);
  load(path, options_);
  ASSERT_TRUE(is_indexed(path));
  fs::last_write_time(path, fs::last_write_time(path) + std::chrono::seconds(1));
  EXPECT_FALSE(is_indexed(path));
  fs::rename(write_trace(36), path);
  EXPECT_FALSE(is_indexed(path));
  expect_same(load(path, options_), load(path, {}));
}

TEST_F(Index, AnotherClockHasItsOwn) {
  const std::string path = write_trace(37);
  load(path, options_);
  Result<TraceSource> source = open_trace(path);
  Alignment clock{};
  clock.offset_ns = 1'000;
  clock.method = AlignmentMethod::kCollectives;
  source->readers[0].set_alignment(1, clock);
  EXPECT_FALSE(TraceIndex::open(source->readers[0], options_).has_value());
  const TraceModel moved = loaded(*source, options_);
  const TraceModel again = loaded(*source, options_);
  expect_same(again, moved);
  EXPECT_EQ(again.processes[0].framework[0].time_ns[0],
            load(path, {}).processes[0].framework[0].time_ns[0] + 1'000);
}

TEST_F(Index, WithoutADirectoryItWorksInMemory) {
  const std::string path = write_trace(38);
  const TraceModel plain = load(path, {});
  std::ofstream(folder_ / "file") << "not a directory";
  expect_same(load(path, options_in(folder_ / "file/index")), plain);
  // A directory that others may write to is not trusted.
  fs::create_directories(folder_ / "open");
  ::chmod((folder_ / "open").c_str(), 0777);
  expect_same(load(path, options_in(folder_ / "open")), plain);
  EXPECT_EQ(entries(folder_ / "open"), 0U);
  IndexOptions full = options_;
  full.most_bytes = 1000;
  expect_same(load(path, full), plain);
  EXPECT_EQ(entries(options_.directory), 0U);
}

TEST_F(Index, LeastRecentlyUsedGoFirst) {
  const std::string a = write_trace(39);
  const std::string b = write_trace(40);
  const std::string c = write_trace(41);
  const auto age = [&](const std::string& of, int64_t seconds) {
    const timespec times[2] = {{::time(nullptr) - seconds, 0}, {::time(nullptr) - seconds, 0}};
    for (const auto& entry : fs::directory_iterator(options_.directory)) {
      std::ifstream manifest(entry.path() / "manifest", std::ios::binary);
      const std::string text((std::istreambuf_iterator<char>(manifest)), {});
      if (text.find(fs::canonical(of).string()) != std::string::npos) {
        ::utimensat(AT_FDCWD, entry.path().c_str(), times, 0);
      }
    }
  };
  load(a, options_);
  uint64_t bytes = 0;
  for (const auto& file : fs::directory_iterator(only_index())) bytes += file.file_size();
  load(b, options_);
  age(a, 1000);
  age(b, 2000);
  options_.most_bytes = bytes * 5 / 2;
  load(c, options_);
  EXPECT_TRUE(is_indexed(a));
  EXPECT_FALSE(is_indexed(b));
  EXPECT_TRUE(is_indexed(c));
}

// The directory of the indexes may be one that the user has other things in.
TEST_F(Index, OnlyIndexesAreRemoved) {
  const fs::path root = options_.directory;
  const auto put = [&](const fs::path& path) {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << "mine";
  };
  const std::vector<fs::path> own = {"work/thesis.txt",
                                     "0123456789abcdef/notes.txt",
                                     "fedcba9876543210/sub/manifest",
                                     "00112233445566ff/manifest",
                                     "00112233445566ff/1.0.csv",
                                     "manifest/x",
                                     "file"};
  for (const fs::path& path : own) put(path);
  load(write_trace(39), options_);
  // Also inside an index that goes.
  for (const fs::directory_entry& entry : fs::directory_iterator(root)) {
    if (fs::exists(entry.path() / "manifest") && !fs::exists(entry.path() / "manifest/x") &&
        !fs::exists(entry.path() / "1.0.csv")) {
      std::ofstream(entry.path() / "notes.txt") << "mine";
    }
  }
  const timespec long_ago[2] = {{1, 0}, {1, 0}};
  for (const fs::directory_entry& entry : fs::directory_iterator(root)) {
    ::utimensat(AT_FDCWD, entry.path().c_str(), long_ago, 0);
  }
  options_.most_bytes = 1;
  load(write_trace(40), options_);
  for (const fs::path& path : own) EXPECT_TRUE(fs::exists(root / path)) << path;
  size_t notes = 0;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root)) {
    if (entry.path().filename() == "notes.txt") ++notes;
  }
  EXPECT_EQ(notes, 2U);
}

TEST(IndexOptions, AGivenDirectoryGetsASubdirectory) {
  ::setenv("TIDEMARK_INDEX", "/some/where", 1);
  EXPECT_EQ(IndexOptions::from_environment().directory, "/some/where/tidemark-index");
  ::setenv("TIDEMARK_INDEX", "0", 1);
  EXPECT_EQ(IndexOptions::from_environment().directory, "");
  ::unsetenv("TIDEMARK_INDEX");
}

}  // namespace
}  // namespace tidemark::test
