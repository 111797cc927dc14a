// The bits of one value as another type: std::bit_cast, which GCC 10 does not have.
#pragma once

#include <cstring>
#include <type_traits>

namespace tidemark {

template <typename To, typename From>
To bits_as(const From& from) noexcept {
  static_assert(sizeof(To) == sizeof(From));
  static_assert(std::is_trivially_copyable_v<To> && std::is_trivially_copyable_v<From>);
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

}  // namespace tidemark
