// A column of a model: contiguous elements that are only ever appended.
//
// Small columns are kept in memory. Those of a large trace are kept in mapped files, so that they
// may be larger than memory: pages written some time ago leave this process's resident memory and
// return when they are read. If a file cannot grow (disk full, no preallocation on this file
// system), the column abandons it and continues in memory: no write into a mapping ever fails.
//
// One thread appends; after the last append any thread may read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

namespace tidemark {

// The bytes under a column.
class ColumnBytes {
 public:
  ColumnBytes() = default;
  ColumnBytes(ColumnBytes&& other) noexcept { swap(other); }
  ColumnBytes& operator=(ColumnBytes&& other) noexcept {
    swap(other);
    return *this;
  }
  ~ColumnBytes();

  // Stores the bytes, still none, in this new file from now on. False: it cannot be created.
  bool create_file(const std::string& path);
  // Maps the first `size` bytes of a file, read-only. False: it does not exist or has another size.
  bool map_file(const std::string& path, size_t size);
  // Reserves at least `needed` bytes; the first `used` are kept.
  void reserve(size_t needed, size_t used);
  // Truncates the file to these bytes and closes it; the functions of
  // analysis/load/index_directory.h write it to disk. False: there is no file.
  bool finish_file(size_t used);

  std::byte* data() const { return data_; }
  size_t capacity() const { return capacity_; }
  bool in_file() const { return in_file_; }
  // Drops resident pages; the file still holds them.
  void release_pages(size_t bytes) const;

 private:
  void swap(ColumnBytes& other) noexcept;
  bool grow_file(size_t needed, size_t used);
  void leave_file(size_t needed, size_t used);

  std::byte* data_ = nullptr;
  size_t capacity_ = 0;
  int fd_ = -1;
  bool in_file_ = false;
};

template <typename T>
class DataColumn {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  using value_type = T;

  DataColumn() = default;
  DataColumn(DataColumn&& other) noexcept { *this = std::move(other); }
  DataColumn& operator=(DataColumn&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    bytes_ = std::move(other.bytes_);
    return *this;
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const T* data() const { return data_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  const T& operator[](size_t i) const { return data_[i]; }
  T& operator[](size_t i) { return data_[i]; }
  const T& front() const { return data_[0]; }
  const T& back() const { return data_[size_ - 1]; }
  T& back() { return data_[size_ - 1]; }
  size_t memory_bytes() const { return size_ * sizeof(T); }

  void push_back(const T& value) {
    const T copy = value;  // it may be an element of this column
    if (size_ == capacity_) grow(size_ + 1);
    data_[size_++] = copy;
  }
  void append(const T* values, size_t count) {
    if (count == 0) return;
    if (size_ + count > capacity_) grow(size_ + count);
    for (size_t i = 0; i < count; ++i) data_[size_ + i] = values[i];
    size_ += count;
  }

  ColumnBytes& bytes() { return bytes_; }
  const ColumnBytes& bytes() const { return bytes_; }
  bool map_file(const std::string& path, size_t count) {
    if (!bytes_.map_file(path, count * sizeof(T))) return false;
    data_ = reinterpret_cast<T*>(bytes_.data());
    size_ = capacity_ = count;
    return true;
  }
  // Nothing may be appended after this.
  bool finish_file() { return bytes_.finish_file(size_ * sizeof(T)); }
  void release_pages() const { bytes_.release_pages(size_ * sizeof(T)); }

 private:
  void grow(size_t count) {
    bytes_.reserve(count * sizeof(T), size_ * sizeof(T));
    data_ = reinterpret_cast<T*>(bytes_.data());
    capacity_ = bytes_.capacity() / sizeof(T);
  }

  T* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
  ColumnBytes bytes_;
};

}  // namespace tidemark
