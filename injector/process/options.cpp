#include "injector/process/options.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "injector/process/seal_signal.h"

namespace tidemark::injector {
namespace {

class Reader {
 public:
  Reader(EnvironmentLookup lookup, Options& options) : lookup_(lookup), options_(options) {}

  const char* text(const char* name) const noexcept {
    const char* value = lookup_(name);
    return value != nullptr && *value != '\0' ? value : nullptr;
  }

  void flag(const char* name, bool& out) noexcept {
    const char* value = text(name);
    if (value == nullptr) return;
    const std::string_view word = value;
    if (word == "1" || word == "on" || word == "true" || word == "yes") {
      out = true;
    } else if (word == "0" || word == "off" || word == "false" || word == "no") {
      out = false;
    } else {
      complain(name);
    }
  }

  void bridge(const char* name, Options& out) noexcept {
    const char* value = text(name);
    if (value != nullptr && std::string_view(value) == "prebuilt") {
      out.compile_bridge = false;
    } else {
      flag(name, out.torch_bridge);
    }
  }

  void number(const char* name, uint32_t largest, uint32_t& out) noexcept {
    const char* value = text(name);
    if (value == nullptr) return;
    const std::string_view word = value;
    uint32_t parsed = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), parsed);
    if (error != std::errc() || end != word.data() + word.size()) return complain(name);
    out = std::min(parsed, largest);
  }

  void keep(const char* name, KeepLimits& out) noexcept {
    const char* value = text(name);
    if (value == nullptr) return;
    const auto parsed = parse_keep(value);
    if (!parsed) return complain(name);
    out = *parsed;
  }

  void overhead(const char* name, uint32_t& out) noexcept {
    const char* value = text(name);
    if (value == nullptr) return;
    const auto parsed = parse_overhead(value);
    if (!parsed) return complain(name);
    out = *parsed;
  }

  void bytes(const char* name, uint64_t& out) noexcept {
    const char* value = text(name);
    if (value == nullptr) return;
    const auto parsed = parse_bytes(value);
    if (!parsed) return complain(name);
    out = *parsed;
  }

  void signal(const char* name, int& out) noexcept {
    const char* value = text(name);
    if (value == nullptr) return;
    const int parsed = parse_seal_signal(value);
    if (parsed == 0) return complain(name);
    out = parsed;
  }

  void stacks(const char* name, StackMode& out) noexcept {
    const char* value = text(name);
    if (value == nullptr) return;
    const std::string_view word = value;
    if (word == "none" || word == "0") {
      out = StackMode::kNone;
    } else if (word == "python") {
      out = StackMode::kPython;
    } else if (word == "native") {
      out = StackMode::kNative;
    } else if (word == "all" || word == "1") {
      out = StackMode::kAll;
    } else {
      complain(name);
    }
  }

 private:
  void complain(const char* name) noexcept {
    if (options_.complaint == nullptr) options_.complaint = name;
  }

  EnvironmentLookup lookup_;
  Options& options_;
};

}  // namespace

Options read_options(EnvironmentLookup lookup) noexcept {
  constexpr uint32_t kLargestBufferMb = 4096;
  Options options;
  Reader reader(lookup, options);
  options.out = reader.text("TIDEMARK_OUT");
  options.ring_directory = reader.text("TIDEMARK_RING_DIR");
  options.chain = reader.text("TIDEMARK_CHAIN");
  reader.flag("TIDEMARK_ARM", options.arm);
  reader.flag("TIDEMARK_CONTROL", options.control);
  reader.stacks("TIDEMARK_STACKS", options.stacks);
  reader.flag("TIDEMARK_KERNELS", options.kernels);
  reader.flag("TIDEMARK_COPIES", options.copies);
  reader.flag("TIDEMARK_NCCL", options.nccl);
  reader.flag("TIDEMARK_TORCH", options.torch);
  reader.bridge("TIDEMARK_BRIDGE", options);
  reader.flag("TIDEMARK_ANNOTATIONS", options.annotations);
  reader.flag("TIDEMARK_OPTIMIZER", options.optimizer);
  reader.flag("TIDEMARK_MODULES", options.modules);
  reader.flag("TIDEMARK_PYTHON_GIL", options.python_gil);
  reader.flag("TIDEMARK_CUPTI", options.cupti);
  reader.number("TIDEMARK_NVML_HZ", kMaxNvmlHz, options.nvml_hz);
  reader.number("TIDEMARK_BUFFER_MB", kLargestBufferMb, options.buffer_mb);
  reader.overhead("TIDEMARK_OVERHEAD", options.overhead);
  reader.keep("TIDEMARK_KEEP", options.keep);
  reader.bytes("TIDEMARK_SEAL_ABOVE", options.seal_above_bytes);
  reader.signal("TIDEMARK_SEAL_SIGNAL", options.seal_signal);
  return options;
}

const char* stack_mode_name(StackMode mode) noexcept {
  constexpr const char* kNames[] = {"none", "python", "native", "all"};
  return kNames[static_cast<size_t>(mode)];
}

}  // namespace tidemark::injector
