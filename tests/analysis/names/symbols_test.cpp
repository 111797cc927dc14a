// Names of native frames: found in the module's file, only in the right build, and kept in the
// trace.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <link.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "analysis/load/trace_model.h"
#include "analysis/names/elf_file.h"
#include "analysis/names/readable_name.h"
#include "analysis/names/source_lines.h"
#include "analysis/names/trace_names.h"
#include "proto/write/trace_writer.h"
#include "tests/support/scratch_directory.h"

namespace tidemark::test {
namespace {

const std::string kWhole = TIDEMARK_NAMED_CODE;
const std::string kStripped = TIDEMARK_NAMED_CODE_STRIPPED;
const std::string kWrongId = std::string(40, 'a');

struct Places {
  uint64_t hidden = 0;
  uint64_t exported = 0;
  uint64_t member = 0;
};

// The addresses of the library's functions in its file, as reported by the library itself.
Places places() {
  void* const library = ::dlopen(kWhole.c_str(), RTLD_NOW);
  if (library == nullptr) ADD_FAILURE() << ::dlerror();
  link_map* map = nullptr;
  ::dlinfo(library, RTLD_DI_LINKMAP, &map);
  const auto ask = reinterpret_cast<void (*)(uintptr_t*, uintptr_t*, uintptr_t*)>(
      ::dlsym(library, "named_code"));
  uintptr_t hidden = 0;
  uintptr_t exported = 0;
  uintptr_t member = 0;
  ask(&hidden, &exported, &member);
  return {hidden - map->l_addr, exported - map->l_addr, member - map->l_addr};
}

std::string build_id_of(const std::string& path) {
  const auto file = ElfFile::from_fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return file ? file->build_id() : "";
}

enum class Recorded { kHere, kOnAnotherHost, kBeforeTheBoot };

// A finished trace with one native frame per offset, all in this module.
void write_trace(const std::string& path, const std::string& module, const std::string& build_id,
                 const std::vector<uint64_t>& offsets, Recorded recorded = Recorded::kHere) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  FdSink sink(fd);
  TraceWriter writer(sink);
  writer.append_string(1, module);
  writer.append_string(2, build_id);
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  writer.append_string(3, recorded == Recorded::kOnAnotherHost ? std::string(host) + "2" : host);
  Process process{};
  process.rank = -1;
  process.host = 3;
  process.start_ns = recorded == Recorded::kBeforeTheBoot ? 1000 : ::time(nullptr) * 1'000'000'000;
  writer.append(process);
  writer.append(Module{1, 0x10000, 0x100000, 1, 2});
  uint32_t id = 0;
  for (const uint64_t offset : offsets) {
    Frame frame{};
    frame.id = ++id;
    frame.module = 1;
    frame.offset = offset;
    frame.kind = FrameKind::kNative;
    writer.append(frame);
    writer.append(Stack{id, 0, id});
  }
  DriverEvent event{};
  event.time_ns = 1000;
  event.stack = 1;
  writer.append(event);
  EXPECT_TRUE(writer.finish());
  ::close(fd);
}

struct Loaded {
  std::vector<std::string> frames;  // of stacks 1, 2, 3 …
  Damage damage;
  uint64_t events = 0;
};

Loaded load(const std::string& path, size_t stacks) {
  Loaded out;
  const Result<TraceReader> reader = TraceReader::open(path);
  if (!reader) {
    ADD_FAILURE() << reader.error().message;
    return out;
  }
  const Result<TraceModel> model = load_trace({&*reader, 1});
  for (uint32_t id = 1; id <= stacks; ++id) {
    out.frames.push_back(model->processes.at(0).names.stack_text(id).at(0));
  }
  out.damage = model->damage;
  out.events = model->rows_by_kind.at(BlockKind::kDriverEvents);
  return out;
}

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(Symbols, FunctionsFilesAndLines) {
  const ScratchDirectory directory;
  const Places at = places();
  write_trace(directory / "t.tmk", kWhole, build_id_of(kWhole), {at.hidden, at.member});
  const Loaded loaded = load(directory / "t.tmk", 2);
  if (reads_source_lines()) {
    EXPECT_TRUE(loaded.frames[0].starts_with("harbour::hidden_tide ")) << loaded.frames[0];
    EXPECT_TRUE(loaded.frames[0].ends_with("named_code.cpp:7")) << loaded.frames[0];
    EXPECT_TRUE(loaded.frames[1].starts_with("harbour::Buoy<long>::ring ")) << loaded.frames[1];
    EXPECT_TRUE(loaded.frames[1].ends_with("named_code.cpp:16")) << loaded.frames[1];
  } else {
    EXPECT_EQ(loaded.frames[0], "harbour::hidden_tide libnamed_code.so");
    EXPECT_EQ(loaded.frames[1], "harbour::Buoy<long>::ring libnamed_code.so");
  }
}

// The paths in a trace from elsewhere could lead anywhere, such as to a network file system.
TEST(Symbols, OnlyTracesOfThisMachineOpenFiles) {
  const ScratchDirectory directory;
  for (const Recorded recorded : {Recorded::kOnAnotherHost, Recorded::kBeforeTheBoot}) {
    write_trace(directory / "t.tmk", kWhole, build_id_of(kWhole), {places().exported}, recorded);
    EXPECT_TRUE(load(directory / "t.tmk", 1).frames[0].starts_with("libnamed_code.so+0x"));
    EXPECT_EQ(*write_names(directory / "t.tmk"), 1U) << "on request";
  }
}

// Some address of the function belongs to the inlined one.
TEST(Symbols, InlinedFunctionsAreNamedWithTheirHost) {
  if (!reads_source_lines()) GTEST_SKIP() << "built without elfutils";
  const ScratchDirectory directory;
  const Places at = places();
  std::vector<uint64_t> offsets;
  for (uint64_t i = 0; i < 96; ++i) offsets.push_back(at.exported + i);
  write_trace(directory / "t.tmk", kWhole, build_id_of(kWhole), offsets);
  size_t inlined = 0;
  for (const std::string& frame : load(directory / "t.tmk", offsets.size()).frames) {
    if (!frame.starts_with("harbour::ripple [inlined in exported_tide] ")) continue;
    EXPECT_TRUE(frame.ends_with("named_code.cpp:22") || frame.ends_with("named_code.cpp:23"))
        << frame;
    ++inlined;
  }
  EXPECT_GT(inlined, 0U);
}

TEST(Symbols, AStrippedModuleStillHasItsExports) {
  const ScratchDirectory directory;
  const Places at = places();
  ASSERT_EQ(build_id_of(kStripped), build_id_of(kWhole));
  write_trace(directory / "t.tmk", kStripped, build_id_of(kWhole), {at.exported, at.hidden});
  const Loaded loaded = load(directory / "t.tmk", 2);
  EXPECT_EQ(loaded.frames[0], "harbour::exported_tide libnamed_code_stripped.so");
  char offset[32];
  std::snprintf(offset, sizeof offset, "+%#llx", static_cast<unsigned long long>(at.hidden));
  EXPECT_EQ(loaded.frames[1], std::string("libnamed_code_stripped.so") + offset);
}

TEST(Symbols, HandWrittenCodeMayHaveNoSize) {
  const ScratchDirectory directory;
  void* const library = ::dlopen(kWhole.c_str(), RTLD_NOW);
  ASSERT_NE(library, nullptr) << ::dlerror();
  link_map* map = nullptr;
  ::dlinfo(library, RTLD_DI_LINKMAP, &map);
  const uint64_t at = reinterpret_cast<uintptr_t>(::dlsym(library, "hand_written")) - map->l_addr;
  write_trace(directory / "t.tmk", kWhole, build_id_of(kWhole), {at + 4, at + 4096});
  const Loaded loaded = load(directory / "t.tmk", 2);
  EXPECT_TRUE(loaded.frames[0].starts_with("hand_written ")) << loaded.frames[0];
  EXPECT_FALSE(loaded.frames[1].starts_with("hand_written ")) << loaded.frames[1];
}

TEST(Symbols, AnotherBuildOfTheModuleIsNotUsed) {
  const ScratchDirectory directory;
  const std::string id = build_id_of(kWhole);
  ASSERT_EQ(id.size(), 40U);
  for (const std::string& wrong : {kWrongId, std::string(), id.substr(0, 38), id + "00"}) {
    write_trace(directory / "t.tmk", kWhole, wrong, {places().exported});
    EXPECT_TRUE(load(directory / "t.tmk", 1).frames[0].starts_with("libnamed_code.so+0x"));
    const Result<uint64_t> named = write_names(directory / "t.tmk");
    ASSERT_TRUE(named);
    EXPECT_EQ(*named, 0U);
  }
}

TEST(Symbols, OnlyRegularFilesAreOpened) {
  const ScratchDirectory directory;
  ASSERT_EQ(::mkfifo((directory / "pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink(directory / "pipe", directory / "link");
  std::ofstream(directory / "empty");
  std::ofstream(directory / "text") << std::string(5000, 'x');
  const std::string paths[] = {directory / "pipe",
                               directory / "link",
                               directory / "empty",
                               directory / "text",
                               directory.path(),
                               directory / "missing",
                               "relative.so",
                               "linux-vdso.so.1",
                               "/dev/zero",
                               "/proc/self/exe",
                               "/proc/self/maps",
                               "/sys/kernel/notes",
                               std::string("/bin/sh\0x", 9)};
  for (const std::string& path : paths) {
    EXPECT_FALSE(ElfFile::open(path, kWrongId)) << path;
    write_trace(directory / "t.tmk", path, kWrongId, {1});
    EXPECT_TRUE(load(directory / "t.tmk", 1).frames[0].ends_with("+0x1")) << path;
  }
}

// Bytes of headers and tables are changed and the file is truncated: no result is required, only
// termination.
TEST(Symbols, DamagedModulesDoNoHarm) {
  const ScratchDirectory directory;
  const std::string path = directory / "x.so";
  std::filesystem::copy_file(kStripped, path);
  const std::string whole = bytes_of(path);
  const std::vector<uint64_t> addresses = {0, 1, places().exported, UINT64_MAX};
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  const auto try_it = [&] {
    const auto file = ElfFile::from_fd(::dup(fd));
    if (!file) return;
    EXPECT_EQ(file->functions_at(addresses).size(), addresses.size());
    static_cast<void>(file->debug_bytes());
  };
  const auto change = [&](size_t at, char value) {
    ASSERT_EQ(::pwrite(fd, &value, 1, static_cast<off_t>(at)), 1);
    try_it();
    ASSERT_EQ(::pwrite(fd, &whole[at], 1, static_cast<off_t>(at)), 1);
  };
  const size_t headers = sizeof(Elf64_Ehdr) + 8 * sizeof(Elf64_Phdr);
  const size_t sections = whole.size() - 24 * sizeof(Elf64_Shdr);
  for (size_t at = 0; at < whole.size(); at = at + 1 == headers ? sections : at + 1) {
    change(at, '\xff');
    change(at, '\x7f');
    change(at, '\0');
  }
  for (size_t size = whole.size(); size > 97; size -= 97) {
    ASSERT_EQ(::ftruncate(fd, static_cast<off_t>(size)), 0);
    try_it();
  }
  ::close(fd);
}

TEST(Symbols, NamesStayInTheTrace) {
  const ScratchDirectory directory;
  const Places at = places();
  const std::string module = directory / "libgone.so";
  std::filesystem::copy_file(kWhole, module);
  write_trace(directory / "t.tmk", module, build_id_of(module), {at.hidden, 0x7fffff});
  const Loaded before = load(directory / "t.tmk", 2);
  const Result<uint64_t> named = write_names(directory / "t.tmk");
  ASSERT_TRUE(named) << named.error().message;
  EXPECT_EQ(*named, 1U);
  std::filesystem::remove(module);
  const Loaded after = load(directory / "t.tmk", 2);
  EXPECT_TRUE(after.frames[0].starts_with("harbour::hidden_tide")) << after.frames[0];
  EXPECT_EQ(after.frames[0], before.frames[0]);
  EXPECT_EQ(after.frames[1], "libgone.so+0x7fffff");
  EXPECT_FALSE(after.damage.any());
  EXPECT_FALSE(after.damage.unfinished);
  EXPECT_EQ(after.events, 1U);
  const std::string bytes = bytes_of(directory / "t.tmk");
  EXPECT_EQ(*write_names(directory / "t.tmk"), 0U);
  EXPECT_EQ(bytes_of(directory / "t.tmk"), bytes) << "a second time changes nothing";
}

TEST(Symbols, TracesThatAreNotFinishedAreLeftAlone) {
  const ScratchDirectory directory;
  const std::string path = directory / "t.tmk";
  write_trace(path, kWhole, build_id_of(kWhole), {places().hidden});
  std::ofstream(directory / "t.tmk.ring") << "in use";
  const std::string whole = bytes_of(path);
  EXPECT_EQ(*write_names(path), 0U);
  EXPECT_EQ(bytes_of(path), whole);
  std::filesystem::remove(directory / "t.tmk.ring");
  std::filesystem::resize_file(path, whole.size() - 5);
  EXPECT_EQ(*write_names(path), 0U);
  EXPECT_EQ(bytes_of(path), whole.substr(0, whole.size() - 5));
}

TEST(Symbols, OnAFullDiskTheTraceIsUnchanged) {
  const ScratchDirectory directory;
  const std::string path = directory / "t.tmk";
  write_trace(path, kWhole, build_id_of(kWhole), {places().hidden});
  const std::string whole = bytes_of(path);
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{whole.size() + 10, whole.size() + 10};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    ::_exit(write_names(path) ? 1 : 0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(bytes_of(path), whole);
}

TEST(ReadableName, IsShortAndReadable) {
  const std::pair<const char*, const char*> cases[] = {
      {"cudaMalloc", "cudaMalloc"},
      {"_ZN2at6Tensor3addEi", "at::Tensor::add"},
      {"_ZNK2at6Tensor3addEi", "at::Tensor::add"},
      {"_ZN7harbour4BuoyIlE4ringEl", "harbour::Buoy<long>::ring"},
      {"_ZN12_GLOBAL__N_14workEv", "work"},
      {"_ZN1AclEv", "A::operator()"},
      {"_ZN1AlsEi", "A::operator<<"},
      {"_ZN1AcvbEv", "A::operator bool"},
      {"_Znwm", "operator new"},
      {"_ZN3foo3barEi.cold", "foo::bar"},
      {"_ZN3foo3barEi.isra.0", "foo::bar"},
      {"_Znonsense", "_Znonsense"},
      {"", ""},
  };
  for (const auto& [mangled, readable] : cases) EXPECT_EQ(readable_name(mangled), readable);
}

TEST(ReadableName, LeavesOutWhatOnlyFillsTheLine) {
  EXPECT_EQ(short_function("void run<std::vector<int, std::allocator<int> >, std::allocator<long> "
                           ">(std::vector<int>, int)::{lambda(int)#1}::operator()(int) const"),
            "run<\u2026>::{lambda#1}::operator()");
  EXPECT_EQ(short_function("std::string f[abi:cxx11](int)"), "f");
  EXPECT_EQ(short_function("bool operator< <int>(A<int> const&, A<int> const&)"),
            "operator< <int>");
  EXPECT_EQ(short_function("A::operator->() const &"), "A::operator->");
  const std::string longest = short_function(std::string(5000, 'x'));
  EXPECT_LT(longest.size(), 220U);
}

}  // namespace
}  // namespace tidemark::test
