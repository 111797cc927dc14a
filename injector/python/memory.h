// Reads members of Python objects directly from memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tidemark::injector {

inline constexpr size_t kPythonTypeOffset = 8;  // of every object

template <typename T>
T read_at(const void* object, size_t offset) noexcept {
  T value;
  std::memcpy(&value, static_cast<const uint8_t*>(object) + offset, sizeof value);
  return value;
}

}  // namespace tidemark::injector
