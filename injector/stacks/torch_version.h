// The version of the PyTorch that a process has loaded.
#pragma once

namespace tidemark::injector {

struct TorchVersion {
  int major = 0;  // 0: unknown
  int minor = 0;

  constexpr bool known() const noexcept { return major != 0; }
  constexpr bool at_least(int other_major, int other_minor) const noexcept {
    return major != other_major ? major > other_major : minor >= other_minor;
  }
};

// `library` is the path of a library of torch. Reads torch/version.py, or torch/build-version,
// which the C++ distribution has instead; without both, the version in the name of the library.
TorchVersion read_torch_version(const char* library) noexcept;

// "'2.13.0a0+git1'" or "2.13.0": the first two numbers.
TorchVersion parse_torch_version(const char* text) noexcept;

}  // namespace tidemark::injector
