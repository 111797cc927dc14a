// Reads any bytes as a trace or a snapshot, also a compressed one, and does with it all that the
// commands and the viewer do: report, diff, what-if, plan, every export, the viewer's model; traces
// also with an index that is damaged between two loads. Live memory and time must stay proportional
// to the input, from the first byte read.
#include <sanitizer/allocator_interface.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "analysis/plan/plan_report.h"
#include "analysis/report/diff.h"
#include "analysis/whatif/whatif_report.h"
#include "collector/snapshot/snapshot_file.h"
#include "collector/snapshot/snapshot_import.h"
#include "export/perfetto/perfetto_export.h"
#include "export/plan/plan_text.h"
#include "export/report/diff_text.h"
#include "export/report/report_html.h"
#include "export/report/report_json.h"
#include "export/report/report_text.h"
#include "export/snapshot/snapshot_export.h"
#include "export/tables/csv_tables.h"
#include "export/tables/parquet_tables.h"
#include "export/tables/sqlite_tables.h"
#include "export/whatif/whatif_json.h"
#include "export/whatif/whatif_text.h"
#include "mended_trace.h"
#include "nameless_file.h"
#include "proto/write/trace_writer.h"
#include "viewer/model/trace/view_model.h"

namespace {

using namespace tidemark;

// Blocks are compressed, so a row may take less than a byte of the file.
constexpr size_t kAnyway = size_t{128} << 20;
constexpr size_t kTimesInput = 4096;
// Of the processor, so that a busy machine makes no difference. With sanitizers, everything takes
// about seventy times as long.
constexpr double kSecondsAnyway = 30;
constexpr double kSecondsPerMiB = 20;
// More are not looked at any further, so that a run tries many inputs.
constexpr uint64_t kMostRows = 20'000;

std::atomic<size_t> g_live{0};
std::atomic<size_t> g_allowed{SIZE_MAX};

void on_malloc(const volatile void*, size_t bytes) {
  if (g_live.fetch_add(bytes) + bytes <= g_allowed.load()) return;
  std::fputs("memory out of proportion to the input\n", stderr);
  std::abort();
}

void on_free(const volatile void* memory) {
  if (memory != nullptr) {
    g_live.fetch_sub(__sanitizer_get_allocated_size(const_cast<const void*>(memory)));
  }
}

const std::string& scratch() {
  static const std::string path = [] {
    char name[] = "/tmp/everything_fuzz.XXXXXX";
    return std::string(::mkdtemp(name) != nullptr ? name : "/tmp");
  }();
  return path;
}

// Where the damage goes depends on the input alone, so that a crash can be repeated.
uint64_t hash_of(std::span<const uint8_t> bytes) {
  uint64_t hash = 0xCBF29CE484222325U;  // FNV-1a
  for (const uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001B3U;
  return hash;
}

std::string write_input(std::span<const uint8_t> bytes) {
  std::string path = scratch() + "/in.tmk";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  return path;
}

bool looks_compressed(std::span<const uint8_t> input) {
  return input.size() > 2 && input[0] == 0x1F && input[1] == 0x8B;
}

bool is_trace(std::span<const uint8_t> input) {
  return !looks_like_pickle(input) && !looks_compressed(input);
}

Result<TraceReader> open_input(std::span<const uint8_t> input) {
  if (looks_compressed(input)) return open_snapshot(write_input(input));
  if (is_trace(input)) {
    std::vector<uint8_t> bytes(input.begin(), input.end());
    mend_checksums(bytes);
    return reader_of(bytes);
  }
  const int fd = ::memfd_create("fuzz", MFD_CLOEXEC);
  FdSink sink(fd);
  TraceWriter writer(sink);
  const auto summary = import_snapshot(input, "fuzz", writer);
  if (summary && writer.finish()) return TraceReader::from_fd(fd, "fuzz");
  ::close(fd);
  return Error{"not a snapshot"};
}

uint64_t rows_of(const TraceReader& reader) {
  uint64_t rows = 0;
  for (const BlockRef& ref : reader.blocks()) rows += ref.rows;
  return rows;
}

void export_all(const TraceModel& model, const TraceReader& reader, const Report& report) {
  const ExportInput input{model, {&reader, 1}, &report};
  ExportOptions options;
  options.events = true;
  options.max_bytes = uint64_t{1} << 26;
  (void)export_perfetto(input, options, scratch() + "/out.pftrace", {});
  (void)export_sqlite(input, options, scratch() + "/out.db", {});
  (void)export_csv(input, options, scratch() + "/csv", {});
  (void)export_parquet(input, options, {"job"}, scratch() + "/parquet", {});
  (void)export_snapshot(input, options, scratch() + "/out.pickle", {});
  std::error_code error;
  for (const char* folder : {"/csv", "/parquet"}) {
    std::filesystem::remove_all(scratch() + folder, error);
  }
}

void use(const TraceReader& reader) {
  Result<TraceModel> model = load_trace({&reader, 1}, {}, {});
  if (!model) return;
  const Result<Report> report = make_report(*model, {});
  if (!report) return;
  (void)report_as_text(*report, {});
  (void)report_as_json(*report);
  (void)report_as_html(*report);
  ReportOptions all;
  all.stacks = SIZE_MAX;
  const Result<Report> whole = make_report(*model, all);
  const Result<Diff> diff = compare(*report, *whole);
  if (diff) {
    (void)diff_as_text(*diff, {});
    (void)diff_as_json(*diff);
  }
  for (const Instant::Kind kind :
       {Instant::Kind::kOom, Instant::Kind::kEnd, Instant::Kind::kTime}) {
    ReportOptions at;
    at.at = {kind, (model->end_ns - model->start_ns) / 2};
    at.card_bytes = uint64_t{1} << 30;
    if (const Result<Report> then = make_report(*model, at)) (void)report_as_text(*then, {});
  }
  WhatIfQuestion question;
  question.all = true;
  if (const auto answered = make_whatif_report(*model, question)) {
    (void)whatif_as_text(*answered, false);
    (void)whatif_as_json(*answered);
  }
  PlanQuestion plan;
  plan.change.batch = plan.change.seq = 2;
  plan.change.optimizer = PlanOptimizer::kAdamW8bit;
  plan.change.ranks = 2;
  for (const PlanShard shard : {PlanShard::kZero2, PlanShard::kZero3}) {
    plan.change.shard = shard;
    plan.change.checkpoint = shard == PlanShard::kZero3;
    if (const auto planned = make_plan_report(*model, nullptr, plan)) {
      (void)plan_as_text(*planned, false);
      (void)plan_as_json(*planned);
      (void)plan_as_svg(*planned);
    }
  }
  (void)make_plan_report(*model, &*model, plan);
  export_all(*model, reader, *report);
  (void)view::make_model(std::move(*model), {});
}

// Flips a byte of every file, or cuts it off there.
void damage_files(const std::string& folder, uint64_t hash) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, error)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const auto& path : files) {
    hash = hash * 6364136223846793005U + 1442695040888963407U;
    const auto size = std::filesystem::file_size(path, error);
    if (size == 0 || (hash >> 60) < 12) continue;  // most stay as they are
    const uint64_t at = (hash >> 8) % size;
    if ((hash >> 60) == 15) {
      std::filesystem::resize_file(path, at, error);
      continue;
    }
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const int byte = file.get();
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(byte ^ (1 << (hash & 7))));
  }
}

void use_with_index(std::span<const uint8_t> input) {
  std::vector<uint8_t> bytes(input.begin(), input.end());
  mend_checksums(bytes);
  const std::string path = write_input(bytes);
  IndexOptions options;
  options.directory = scratch() + "/index";
  options.from_events = 0;
  for (int load = 0; load < 2; ++load) {
    const Result<TraceReader> reader = TraceReader::open(path);
    if (!reader) break;
    {
      const Result<TraceModel> model = load_trace({&*reader, 1}, {}, options);
      if (model) (void)make_report(*model, {});
    }
    damage_files(options.directory, hash_of(input));
  }
  std::error_code error;
  std::filesystem::remove_all(options.directory, error);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  g_allowed = g_live + kAnyway + kTimesInput * size;
  const std::clock_t start = std::clock();
  {
    const auto reader = open_input({data, size});
    if (reader && rows_of(*reader) <= kMostRows) {
      use(*reader);
      if (is_trace({data, size})) use_with_index({data, size});
    }
  }
  g_allowed = SIZE_MAX;
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  if (seconds > kSecondsAnyway + kSecondsPerMiB * static_cast<double>(size) / (1 << 20)) {
    std::fprintf(stderr, "%.1f s for %zu bytes: out of proportion\n", seconds, size);
    std::abort();
  }
  return 0;
}
