#include "collector/pickle/byte_source.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <utility>

#include "proto/base/descriptor.h"

namespace tidemark {

namespace {

constexpr size_t kMaxPopulatedBytes = size_t{1} << 30;

bool is_gzip(std::span<const uint8_t> bytes) {
  return bytes.size() >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
}

const char* kind_of_file(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

// Inflates all members of a gzip file into one buffer on the heap.
class GzipInflater {
 public:
  GzipInflater(std::span<const uint8_t> input, uint64_t max_bytes)
      : input_(input), max_bytes_(std::min<uint64_t>(max_bytes, PTRDIFF_MAX - 1)) {}
  GzipInflater(const GzipInflater&) = delete;
  GzipInflater& operator=(const GzipInflater&) = delete;
  ~GzipInflater() {
    if (ready_) inflateEnd(&stream_);
    std::free(data_);
  }

  // nullptr, or the problem as the end of a sentence.
  const char* run();

  size_t size() const { return size_; }
  uint8_t* release();

 private:
  const char* run_member();
  const char* grow();
  void give_input();
  size_t consumed() const { return given_ - stream_.avail_in; }

  std::span<const uint8_t> input_;
  const uint64_t max_bytes_;
  z_stream stream_{};
  bool ready_ = false;
  size_t given_ = 0;  // how much of the input zlib has got
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

// zlib counts in 32 bits.
uInt clamp_to_uint(size_t bytes) {
  return static_cast<uInt>(std::min<size_t>(bytes, std::numeric_limits<uInt>::max()));
}

void GzipInflater::give_input() {
  if (stream_.avail_in != 0) return;
  stream_.next_in = const_cast<Bytef*>(input_.data() + given_);  // zlib does not write to it
  stream_.avail_in = clamp_to_uint(input_.size() - given_);
  given_ += stream_.avail_in;
}

const char* GzipInflater::grow() {
  // Snapshots shrink to a tenth or twentieth; deflate can shrink zeros to a thousandth.
  constexpr uint64_t kMostTimesLarger = 250;
  constexpr uint64_t kAnyway = uint64_t{16} << 20;
  if (size_ > kAnyway && size_ / kMostTimesLarger > input_.size()) {
    return "inflates to more than 250 times its size, which no snapshot does";
  }
  // The buffer is one byte larger than the limit, so that a file of exactly the limit can end.
  if (size_ > max_bytes_) return "inflates to more than the memory limit for compressed input";
  // In 64 bits: on a 32-bit system, twice the size may be 0.
  const uint64_t wanted =
      std::max({uint64_t{capacity_} * 2, uint64_t{input_.size()} * 4, uint64_t{1} << 16});
  const auto capacity = static_cast<size_t>(std::min<uint64_t>({wanted, max_bytes_ + 1, SIZE_MAX}));
  void* const moved = std::realloc(data_, capacity);
  if (moved == nullptr) return "inflates to more than the available memory";
  data_ = static_cast<uint8_t*>(moved);
  capacity_ = capacity;
  return nullptr;
}

const char* GzipInflater::run_member() {
  for (;;) {
    if (size_ == capacity_) {
      if (const char* why = grow()) return why;
    }
    give_input();
    const uInt room = clamp_to_uint(capacity_ - size_);
    stream_.next_out = data_ + size_;
    stream_.avail_out = room;
    const int status = inflate(&stream_, Z_NO_FLUSH);
    size_ += room - stream_.avail_out;
    if (size_ > max_bytes_) return grow();
    if (status == Z_STREAM_END) return nullptr;
    if (status == Z_MEM_ERROR) return "needs more memory to inflate than is available";
    const bool out_of_input = stream_.avail_in == 0 && given_ == input_.size();
    if (status == Z_BUF_ERROR && out_of_input) return "is a truncated gzip file";
    if (status != Z_OK && status != Z_BUF_ERROR) return "is a damaged gzip file";
  }
}

const char* GzipInflater::run() {
  constexpr int kGzipOnly = 16;
  if (inflateInit2(&stream_, MAX_WBITS + kGzipOnly) != Z_OK) return "could not be inflated";
  ready_ = true;
  for (;;) {
    if (const char* why = run_member()) return why;
    const std::span<const uint8_t> rest = input_.subspan(consumed());
    // Tapes and some object stores pad with zeros.
    if (std::all_of(rest.begin(), rest.end(), [](uint8_t byte) { return byte == 0; })) {
      return nullptr;
    }
    if (!is_gzip(rest)) return "has bytes after its gzip data that are not gzip; it may be damaged";
    inflateReset(&stream_);
  }
}

uint8_t* GzipInflater::release() {
  void* const cut = std::realloc(data_, std::max<size_t>(size_, 1));
  uint8_t* const data = cut == nullptr ? data_ : static_cast<uint8_t*>(cut);
  data_ = nullptr;
  return data;
}

}  // namespace

ByteSource::ByteSource(ByteSource&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      ownership_(std::exchange(other.ownership_, Ownership::kNone)) {}

ByteSource& ByteSource::operator=(ByteSource&& other) noexcept {
  ByteSource taken(std::move(other));
  std::swap(data_, taken.data_);
  std::swap(size_, taken.size_);
  std::swap(ownership_, taken.ownership_);
  return *this;
}

ByteSource::~ByteSource() {
  void* const memory = const_cast<uint8_t*>(data_);
  if (ownership_ == Ownership::kMapping) munmap(memory, size_);
  if (ownership_ == Ownership::kHeap) std::free(memory);
}

uint64_t default_max_inflated_bytes() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page_bytes = sysconf(_SC_PAGESIZE);
  uint64_t memory = pages <= 0 || page_bytes <= 0
                        ? uint64_t{2} << 30
                        : static_cast<uint64_t>(pages) * static_cast<uint64_t>(page_bytes);
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_AS, &limit) == 0) memory = std::min<uint64_t>(memory, limit.rlim_cur);
  uint64_t of_container = 0;
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> of_container) {  // "max": none
    memory = std::min(memory, of_container);
  }
  return memory / 2;
}

Result<ByteSource> open_bytes(const std::string& path, uint64_t max_inflated_bytes) {
  // O_NONBLOCK: opening a pipe without a writer must not hang.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (file.get() < 0 || fstat(file.get(), &info) != 0) {
    return Error{path + " cannot be opened: " + std::strerror(errno)};
  }
  if (!S_ISREG(info.st_mode)) {
    return Error{path + " is " + kind_of_file(info.st_mode) + ", not a regular file"};
  }
  if (info.st_size == 0) return Error{path + " is empty"};
  const size_t size = static_cast<size_t>(info.st_size);
  // One call is cheaper than a page fault per 64 KiB, but must not evict too much other memory.
  const int populate = size <= kMaxPopulatedBytes ? MAP_POPULATE : 0;
  void* const mapped = mmap(nullptr, size, PROT_READ, MAP_PRIVATE | populate, file.get(), 0);
  if (mapped == MAP_FAILED) return Error{path + " cannot be mapped: " + std::strerror(errno)};
  ByteSource source(static_cast<const uint8_t*>(mapped), size, ByteSource::Ownership::kMapping);
  madvise(mapped, size, MADV_SEQUENTIAL);
  if (!is_gzip(source.bytes())) return source;

  GzipInflater inflater(source.bytes(), max_inflated_bytes);
  if (const char* why = inflater.run()) return Error{path + " " + why};
  if (inflater.size() == 0) return Error{path + " is empty after inflating"};
  const size_t inflated = inflater.size();
  return ByteSource(inflater.release(), inflated, ByteSource::Ownership::kHeap);
}

}  // namespace tidemark
