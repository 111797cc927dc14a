#include "analysis/load/trace_index.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include "analysis/history/minmax_pyramid.h"
#include "analysis/load/index_directory.h"
#include "analysis/load/index_stamp.h"
#include "proto/base/crc32.h"
#include "proto/base/file_io.h"
#include "proto/base/version.h"

namespace tidemark {

namespace {

constexpr uint64_t kMagic = 0x315844494b524d54;  // "TMRKIDX1"
constexpr size_t kMostManifestBytes = size_t{64} << 20;
constexpr size_t kMostNcclBytes = size_t{4} << 30;
// Measured, and rounded up: see bench/index_bench.cpp.
constexpr uint64_t kBytesPerEvent = 40;

// The state of the file, the clocks and the version of the replay. Empty: the file may still
// change.
std::string identity_of(const TraceReader& reader) {
  struct stat info {};
  Trailer trailer;
  FrameHeader header;
  if (reader.damage().unfinished || ::stat(reader.path().c_str(), &info) != 0 ||
      !S_ISREG(info.st_mode) || static_cast<uint64_t>(info.st_size) != reader.file_bytes() ||
      !looks_like_trace(reader.path()) ||
      !reader.read_at(reader.file_bytes() - sizeof trailer, &trailer, sizeof trailer) ||
      !reader.read_at(trailer.index_offset, &header, sizeof header)) {
    return "";
  }
  std::error_code error;
  const std::filesystem::path path = std::filesystem::canonical(reader.path(), error);
  if (error) return "";
  std::string text = fmt::format("{}\ntidemark {}, replay {}\n{} bytes, {}.{:09}, {:08x}\n",
                                 path.string(), kVersion, TIDEMARK_INDEX_KEY, reader.file_bytes(),
                                 info.st_mtim.tv_sec, info.st_mtim.tv_nsec, header.payload_crc);
  for (const uint32_t process : reader.left_out()) text += fmt::format("without {}\n", process);
  uint32_t last = 0;
  std::vector<uint32_t> processes;
  for (const BlockRef& ref : reader.blocks()) {
    if (ref.process != last) processes.push_back(ref.process);
    last = ref.process;
  }
  std::sort(processes.begin(), processes.end());
  processes.erase(std::unique(processes.begin(), processes.end()), processes.end());
  for (const uint32_t process : processes) {
    const Alignment* clock = reader.alignment(process);
    // A correction of nothing changes no time.
    if (clock == nullptr || (clock->offset_ns == 0 && clock->drift_ppb == 0)) continue;
    text += fmt::format("process {}: {} {} {}\n", process, clock->reference_ns, clock->offset_ns,
                        clock->drift_ppb);
  }
  return text;
}

std::string path_of(const IndexOptions& options, const std::string& identity) {
  uint64_t hash = 0xCBF29CE484222325U;  // FNV-1a: the manifest repeats the whole identity
  for (const char c : identity) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
  }
  return fmt::format("{}/{:016x}", options.directory, hash);
}

uint64_t event_rows(const TraceReader& reader) {
  uint64_t rows = 0;
  for (const BlockRef& ref : reader.blocks()) {
    if (ref.kind == BlockKind::kFrameworkEvents) rows += ref.rows;
  }
  return rows;
}

template <typename Column>
uint64_t column_checksum(const Column& column) {
  // Pages that were read may leave this process's memory again.
  return checksum_of(column.data(), column.memory_bytes(),
                     [&](size_t read) { column.bytes().release_pages(read); });
}

class ByteWriter {
 public:
  template <typename T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void put_text(const std::string& text) {
    put(uint64_t{text.size()});
    bytes += text;
  }
  std::string bytes;
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}
  template <typename T>
  T get() {
    T value{};
    if (rest_.size() < sizeof value) {
      good = false;
      rest_ = {};
      return value;
    }
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_.remove_prefix(sizeof value);
    return value;
  }
  std::string_view get_text() {
    const auto size = get<uint64_t>();
    if (size > rest_.size()) {
      good = false;
      return {};
    }
    const std::string_view text = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return text;
  }
  bool good = true;

 private:
  std::string_view rest_;
};

std::string column_path(const std::string& directory, uint32_t process, int64_t device,
                        const char* column) {
  return fmt::format("{}/{}.{}.{}", directory, process, device, column);
}

bool write_file(const std::string& path, const void* data, size_t bytes) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return false;
  const bool good = write_all(fd, data, bytes);
  return ::close(fd) == 0 && good;
}

// False when it does not exist or is longer than `most`.
bool read_file(const std::string& path, size_t most, std::string& out) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return false;
  struct stat info {};
  bool good = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == ::geteuid() &&
              static_cast<uint64_t>(info.st_size) <= most;
  if (good) {
    out.resize(static_cast<size_t>(info.st_size));
    good = read_at(fd, 0, out.data(), out.size());
  }
  ::close(fd);
  return good;
}

// The numbers of a model that are not in columns.
void put_facts(ByteWriter& out, const AllocationHistory& m) {
  out.put(m.device);
  for (const Peak* peak :
       {&m.allocated_peak, &m.requested_peak, &m.active_peak, &m.reserved_peak}) {
    out.put(peak->bytes);
    out.put(peak->time_ns);
    out.put(peak->event);
  }
  out.put(m.recorded_events);
  out.put(m.seed_events);
  out.put(m.seeded_blocks);
  out.put(m.seeded_bytes);
  out.put(m.anomalies);
  out.put(uint64_t{m.failures.size()});
  for (const FailedAllocation& f : m.failures) {
    out.put(f.time_ns);
    out.put(f.requested_bytes);
    out.put(f.device_free_bytes);
    out.put(f.stack);
    out.put(f.event);
    out.put(f.stream);
    out.put(f.pool);
  }
}

void get_facts(ByteReader& in, AllocationHistory& m) {
  m.device = in.get<int64_t>();
  for (Peak* peak : {&m.allocated_peak, &m.requested_peak, &m.active_peak, &m.reserved_peak}) {
    peak->bytes = in.get<uint64_t>();
    peak->time_ns = in.get<int64_t>();
    peak->event = in.get<uint32_t>();
  }
  m.recorded_events = in.get<uint64_t>();
  m.seed_events = in.get<uint32_t>();
  m.seeded_blocks = in.get<uint64_t>();
  m.seeded_bytes = in.get<uint64_t>();
  m.anomalies = in.get<uint64_t>();
  const auto failures = in.get<uint64_t>();
  for (uint64_t i = 0; i < failures && in.good; ++i) {
    FailedAllocation f;
    f.device = m.device;
    f.time_ns = in.get<int64_t>();
    f.requested_bytes = in.get<uint64_t>();
    f.device_free_bytes = in.get<uint64_t>();
    f.stack = in.get<uint32_t>();
    f.event = in.get<uint32_t>();
    f.stream = in.get<uint64_t>();
    f.pool = in.get<uint32_t>();
    m.failures.push_back(f);
  }
}

void put_damage(ByteWriter& out, const Damage& d) {
  out.put(d.blocks);
  out.put(d.rows);
  out.put(d.skipped_bytes);
}

Damage get_damage(ByteReader& in) {
  Damage d;
  d.blocks = in.get<uint64_t>();
  d.rows = in.get<uint64_t>();
  d.skipped_bytes = in.get<uint64_t>();
  return d;
}

// Columns with inconsistent sizes are unusable.
bool is_consistent(AllocationHistory& m) {
  const size_t events = m.change.size();
  const size_t rows = m.allocations.size();
  bool same = m.time_ns.size() == events && m.subject.size() == events && events < kNever &&
              m.keyframes.size() ==
                  (events + AllocationHistory::kKeyframe - 1) / AllocationHistory::kKeyframe &&
              m.allocations.flags().size() == rows && m.states.empty() == (events == 0);
  m.allocations.visit_columns([&](std::string_view name, const auto& column) {
    same = same && (name == "kinds" || column.size() == rows);
  });
  return same && m.extremes.size() == MinMaxPyramid::nodes_for(m.event_count()) &&
         m.cells.size() == (events + AllocationHistory::kCell - 1) / AllocationHistory::kCell;
}

bool write_kernels(ByteWriter& out, const std::string& directory, uint32_t process,
                   const ComputeTime& compute, std::span<const NcclOperation> nccl) {
  out.put(compute.float32_ns);
  out.put(compute.half_ns);
  out.put(uint64_t{nccl.size()});
  out.put(crc32(nccl.data(), nccl.size_bytes()));
  return write_file(fmt::format("{}/{}.nccl", directory, process), nccl.data(), nccl.size_bytes());
}

bool read_kernels(ByteReader& in, const std::string& directory, uint32_t process,
                  KernelFacts& facts) {
  static_assert(std::is_trivially_copyable_v<NcclOperation>);
  facts.compute.float32_ns = in.get<uint64_t>();
  facts.compute.half_ns = in.get<uint64_t>();
  const auto count = in.get<uint64_t>();
  const auto crc = in.get<uint32_t>();
  std::string rows;
  if (!in.good || count > kMostNcclBytes / sizeof(NcclOperation) ||
      !read_file(fmt::format("{}/{}.nccl", directory, process), kMostNcclBytes, rows) ||
      rows.size() != count * sizeof(NcclOperation) || crc32(rows.data(), rows.size()) != crc) {
    return false;
  }
  facts.nccl.resize(count);
  if (count != 0) std::memcpy(facts.nccl.data(), rows.data(), rows.size());
  return true;
}

bool map_model(ByteReader& in, const std::string& directory, uint32_t process, bool verified,
               AllocationHistory& m) {
  get_facts(in, m);
  bool good = in.good;
  m.visit_columns([&](const char* name, auto& column) {
    const auto count = in.get<uint64_t>();
    const auto checksum = in.get<uint64_t>();
    good = good && in.good && count <= UINT64_MAX / 64 &&
           column.map_file(column_path(directory, process, m.device, name),
                           static_cast<size_t>(count)) &&
           (verified || column_checksum(column) == checksum);
  });
  const auto flags_crc = in.get<uint32_t>();
  std::string flags;
  good = good && in.good &&
         read_file(column_path(directory, process, m.device, "flags"), m.allocations.size(), flags);
  if (!good || crc32(flags.data(), flags.size()) != flags_crc) return false;
  m.allocations.flags().append(reinterpret_cast<const uint8_t*>(flags.data()), flags.size());
  m.allocations.finish(m.time_ns.data());
  return is_consistent(m);
}

}  // namespace

std::optional<TraceIndex> TraceIndex::open(const TraceReader& reader, const IndexOptions& options) {
  if (options.directory.empty() || event_rows(reader) < options.from_events) return {};
  const std::string identity = identity_of(reader);
  if (identity.empty()) return {};
  const std::string directory = path_of(options, identity);
  if (!is_own_directory(options.directory) || !is_own_directory(directory)) return {};
  std::string manifest;
  if (!read_file(directory + "/" + kIndexManifest, kMostManifestBytes, manifest)) return {};
  if (manifest.size() < sizeof(uint32_t)) return {};
  const size_t body = manifest.size() - sizeof(uint32_t);
  uint32_t crc = 0;
  std::memcpy(&crc, manifest.data() + body, sizeof crc);
  ByteReader in(std::string_view(manifest).substr(0, body));
  if (crc32(manifest.data(), body) != crc || in.get<uint64_t>() != kMagic ||
      in.get_text() != identity) {
    return {};
  }
  const bool verified = has_valid_stamp(directory);
  TraceIndex index;
  index.damage_ = get_damage(in);
  const auto processes = in.get<uint64_t>();
  for (uint64_t i = 0; i < processes && in.good; ++i) {
    const auto process = in.get<uint32_t>();
    if (!read_kernels(in, directory, process, index.kernels_[process])) return {};
    const auto models = in.get<uint64_t>();
    for (uint64_t m = 0; m < models && in.good; ++m) {
      StoredModel stored;
      stored.process = process;
      if (!map_model(in, directory, process, verified, stored.model)) return {};
      index.models_.push_back(std::move(stored));
    }
  }
  if (!in.good) return {};
  if (!verified) write_stamp(directory);
  touch_index(directory);
  return index;
}

std::vector<AllocationHistory> TraceIndex::take(uint32_t process) {
  std::vector<AllocationHistory> models;
  for (StoredModel& stored : models_) {
    if (stored.process == process) models.push_back(std::move(stored.model));
  }
  return models;
}

KernelFacts TraceIndex::take_kernels(uint32_t process) {
  return std::move(kernels_[process]);
}

bool is_indexable(const TraceReader& reader, const IndexOptions& options) {
  const uint64_t rows = event_rows(reader);
  return !options.directory.empty() && rows >= options.from_events &&
         rows * kBytesPerEvent <= index_space_bytes(options) && !identity_of(reader).empty();
}

TraceIndexWriter::TraceIndexWriter(IndexOptions options, std::string identity)
    : options_(std::move(options)), identity_(std::move(identity)) {}

std::unique_ptr<TraceIndexWriter> TraceIndexWriter::create(const TraceReader& reader,
                                                           const IndexOptions& options) {
  if (!is_indexable(reader, options)) return nullptr;
  std::unique_ptr<TraceIndexWriter> writer(new TraceIndexWriter(options, identity_of(reader)));
  writer->temporary_ = make_index_place(options);
  return writer->temporary_.empty() ? nullptr : std::move(writer);
}

TraceIndexWriter::~TraceIndexWriter() {
  if (!temporary_.empty()) remove_index(temporary_);
}

void TraceIndexWriter::adopt(AllocationHistory& model, uint32_t process) {
  model.visit_columns([&](const char* name, auto& column) {
    // If that fails, the column stays in memory, and finish() detects it.
    column.bytes().create_file(column_path(temporary_, process, model.device, name));
  });
}

void TraceIndexWriter::keep(uint32_t process, std::span<AllocationHistory> models,
                            const ComputeTime& compute, std::span<const NcclOperation> nccl) {
  ByteWriter out;
  out.put(process);
  good_ = write_kernels(out, temporary_, process, compute, nccl) && good_;
  out.put(uint64_t{models.size()});
  kept_ += out.bytes;
  for (AllocationHistory& m : models) keep_model(process, m);
  ++processes_;
}

void TraceIndexWriter::keep_model(uint32_t process, AllocationHistory& m) {
  ByteWriter out;
  put_facts(out, m);
  m.visit_columns([&](const char* name, auto& column) {
    good_ = column.finish_file() && good_;
    out.put(uint64_t{column.size()});
    columns_.push_back({column_path(temporary_, process, m.device, name), column.memory_bytes(),
                        kept_.size() + out.bytes.size()});
    out.put(uint64_t{0});
  });
  const DataColumn<uint8_t>& flags = m.allocations.flags();
  out.put(crc32(flags.data(), flags.size()));
  kept_ += out.bytes;
  const std::string path = column_path(temporary_, process, m.device, "flags");
  good_ = write_file(path, flags.data(), flags.size()) && good_;
}

bool TraceIndexWriter::add_checksums() {
  for (const StoredColumn& c : columns_) {
    DataColumn<std::byte> column;
    if (!column.map_file(c.path, c.bytes)) return false;
    const uint64_t checksum = column_checksum(column);
    std::memcpy(kept_.data() + c.checksum_at, &checksum, sizeof checksum);
  }
  return true;
}

bool TraceIndexWriter::finish(const Damage& damage) {
  start_writing_index(temporary_);
  if (!good_ || !add_checksums()) return false;
  ByteWriter out;
  out.put(kMagic);
  out.put_text(identity_);
  put_damage(out, damage);
  out.put(processes_);
  out.bytes += kept_;
  out.put(crc32(out.bytes.data(), out.bytes.size()));
  const std::string path = path_of(options_, identity_);
  if (!write_file(temporary_ + "/" + kIndexManifest, out.bytes.data(), out.bytes.size()) ||
      !sync_index(temporary_) || !name_index(temporary_, path)) {
    return false;
  }
  temporary_.clear();
  trim_indexes(options_, path);
  return true;
}

}  // namespace tidemark
