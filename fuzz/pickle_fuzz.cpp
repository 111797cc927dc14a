// Reads any bytes as a pickle and visits everything in the document.
//
// The bytes are read twice: alone, and with a tail that lets the reader's fast path look ahead. If
// they are valid alone, the document must be the same with the tail.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "collector/pickle/reader.h"

namespace {

using tidemark::PickleDocument;
using tidemark::PickleKey;
using tidemark::PickleKind;
using tidemark::PickleLimits;
using tidemark::PickleValue;

void require(bool holds) {
  if (!holds) std::abort();
}

// Visits each container once and hashes everything into one number. Recursion is bounded by the
// depth limit, which the visit checks as well.
class Visit {
 public:
  Visit(const PickleDocument& document, std::span<const uint8_t> input)
      : document_(document), input_(input), visited_(document.container_count()) {}

  uint64_t run() {
    visit(document_.root(), 0);
    return sum_;
  }

 private:
  void mix(uint64_t number) { sum_ = (sum_ ^ number) * 0x100000001b3; }

  void mix_text(std::span<const uint8_t> text) {
    require(text.data() >= input_.data());
    require(text.data() + text.size() <= input_.data() + input_.size());
    for (const uint8_t byte : text) mix(byte);
  }

  void visit(PickleValue value, int depth) {
    mix(static_cast<uint64_t>(value.kind()));
    switch (value.kind()) {
      case PickleKind::kAbsent:
        require(false);
        break;
      case PickleKind::kNone:
        break;
      case PickleKind::kBool:
        mix(*document_.as_bool(value) ? 1 : 2);
        break;
      case PickleKind::kInt:
        require(document_.as_i64(value).has_value() || document_.as_u64(value).has_value());
        mix(*document_.as_address(value));
        break;
      case PickleKind::kFloat: {
        uint64_t bits = 0;
        const double number = *document_.as_f64(value);
        std::memcpy(&bits, &number, sizeof(bits));
        mix(bits);
        break;
      }
      case PickleKind::kString: {
        const std::string_view text = *document_.as_string(value);
        mix_text({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
        break;
      }
      case PickleKind::kBytes:
        mix_text(*document_.as_bytes(value));
        break;
      case PickleKind::kList:
      case PickleKind::kTuple:
      case PickleKind::kDict:
        visit_container(value, depth + 1);
        break;
    }
  }

  void visit_container(PickleValue value, int depth) {
    require(depth <= PickleLimits{}.max_depth);
    require(value.container_id() < visited_.size());
    mix(value.container_id());
    if (visited_[value.container_id()]) return;
    visited_[value.container_id()] = true;
    for (const PickleValue item : document_.items(value)) visit(item, depth);
    require(document_.keys(value).size() == document_.values(value).size());
    for (const PickleValue key : document_.keys(value)) {
      visit(key, depth);
      if (const std::optional<std::string_view> name = document_.as_string(key)) {
        PickleKey cached(document_, *name);
        require(!document_.find(value, *name).is_absent());
        require(document_.find(value, cached) == document_.find(value, *name));
      }
    }
    for (const PickleValue item : document_.values(value)) visit(item, depth);
  }

  const PickleDocument& document_;
  const std::span<const uint8_t> input_;
  std::vector<bool> visited_;
  uint64_t sum_ = 0xcbf29ce484222325;
};

// Nothing if the bytes are rejected. Works on an exact copy, so that the sanitizer sees overruns.
std::optional<uint64_t> read(const uint8_t* data, size_t size, size_t tail_bytes) {
  const auto copy = std::make_unique<uint8_t[]>(size + tail_bytes);
  if (size != 0) std::memcpy(copy.get(), data, size);
  const std::span<const uint8_t> input(copy.get(), size + tail_bytes);
  const auto document = tidemark::parse_pickle(input);
  if (!document) {
    require(!document.error().message.empty());
    return std::nullopt;
  }
  require(document->memory_bytes() <= 64 * input.size() + 1024);
  // The tail is not part of the input.
  if (document->consumed_bytes() > size) return std::nullopt;
  return Visit(*document, input).run();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::optional<uint64_t> alone = read(data, size, 0);
  const std::optional<uint64_t> with_tail = read(data, size, 2048);
  if (alone) require(with_tail == alone);  // otherwise a FRAME may reach into the tail
  return 0;
}
