// Assertions that our declaration (in a namespace) matches the vendor's (in the global one).
#pragma once

#include <array>
#include <cstddef>
#include <type_traits>

// NOLINTBEGIN
#define SAME_VALUE(NS, NAME) \
  static_assert(static_cast<long long>(NS::NAME) == static_cast<long long>(::NAME), #NAME);

#define SAME_SIZE(NS, TYPE) static_assert(sizeof(NS::TYPE) == sizeof(::TYPE), #TYPE);

// FIELD has the same offset and size in OURS (of NS) and in THEIRS.
#define SAME_IN(NS, OURS, THEIRS, FIELD)                                                   \
  static_assert(offsetof(NS::OURS, FIELD) == offsetof(::THEIRS, FIELD), #OURS "." #FIELD); \
  static_assert(sizeof(NS::OURS::FIELD) == sizeof(::THEIRS::FIELD), #OURS "." #FIELD);

#define SAME_PARENS ()
#define SAME_EXPAND(...) SAME_EXPAND3(SAME_EXPAND3(SAME_EXPAND3(__VA_ARGS__)))
#define SAME_EXPAND3(...) SAME_EXPAND2(SAME_EXPAND2(SAME_EXPAND2(__VA_ARGS__)))
#define SAME_EXPAND2(...) SAME_EXPAND1(SAME_EXPAND1(SAME_EXPAND1(__VA_ARGS__)))
#define SAME_EXPAND1(...) __VA_ARGS__
#define SAME_EACH(NS, TYPE, FIELD, ...) \
  SAME_IN(NS, TYPE, TYPE, FIELD) __VA_OPT__(SAME_AGAIN SAME_PARENS(NS, TYPE, __VA_ARGS__))
#define SAME_AGAIN() SAME_EACH

// Every FIELD of TYPE, up to 27 of them.
#define SAME_FIELDS(NS, TYPE, ...) SAME_EXPAND(SAME_EACH(NS, TYPE, __VA_ARGS__))

// Parameters and result agree in number and size, and in whether they are pointers.
#define SAME_FUNCTION(NS, NAME)                                                               \
  static_assert(                                                                              \
      tidemark_test::Shape<NS::NAME##_fn>::of == tidemark_test::Shape<decltype(&::NAME)>::of, \
      #NAME);
// NOLINTEND

namespace tidemark_test {

struct Value {
  size_t bytes;
  bool pointer;
  bool operator==(const Value&) const = default;
};

template <typename T>
constexpr Value value_of() {
  if constexpr (std::is_void_v<T>) {
    return {0, false};
  } else {
    return {sizeof(T), std::is_pointer_v<T>};
  }
}

template <typename Function>
struct Shape;

template <typename Result, typename... Parameters>
struct Shape<Result (*)(Parameters...)> {
  static constexpr std::array<Value, sizeof...(Parameters) + 1> of{value_of<Result>(),
                                                                   value_of<Parameters>()...};
};

}  // namespace tidemark_test
