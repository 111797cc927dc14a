#include "analysis/whatif/allocator/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <optional>

#include "proto/base/leading_number.h"

namespace tidemark {

namespace {

constexpr uint64_t kMib = uint64_t{1} << 20;
constexpr uint64_t kMaxMib = uint64_t{1} << 40;  // keeps bytes within 64 bits

template <typename T>
std::optional<T> number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// One "key:value" of the text without white space; the value of a list is its content.
struct Option {
  std::string key;
  std::string value;
  bool list = false;
};

Result<std::vector<Option>> options_of(std::string_view conf) {
  std::string text;
  std::copy_if(conf.begin(), conf.end(), std::back_inserter(text),
               [](char c) { return c != ' ' && c != '\t' && c != '\n'; });
  std::vector<Option> options;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == ',') {
      ++at;
      continue;
    }
    const size_t colon = text.find_first_of(":,", at);
    if (colon == std::string::npos || text[colon] == ',') {
      return Error{fmt::format("'{}' has no value; write key:value,key:value",
                               text.substr(at, std::min(colon, text.size()) - at))};
    }
    Option option{text.substr(at, colon - at), {}, false};
    at = colon + 1;
    if (at < text.size() && text[at] == '[') {
      const size_t close = text.find(']', at);
      if (close == std::string::npos) {
        return Error{fmt::format("the list of '{}' is not closed with ]", option.key)};
      }
      option.value = text.substr(at + 1, close - at - 1);
      option.list = true;
      at = close + 1;
    } else {
      const size_t comma = std::min(text.size(), text.find(',', at));
      option.value = text.substr(at, comma - at);
      at = comma;
    }
    options.push_back(std::move(option));
  }
  return options;
}

Error bad_value(const Option& option, std::string_view wanted) {
  return Error{fmt::format("{} must be {}, not '{}{}{}'", option.key, wanted,
                           option.list ? "[" : "", option.value, option.list ? "]" : "")};
}

Status read_bool(const Option& option, bool& target) {
  if (option.value != "True" && option.value != "False") {
    return bad_value(option, "True or False");
  }
  target = option.value == "True";
  return {};
}

Status read_mib(const Option& option, uint64_t above, uint64_t& target) {
  const auto mib = number<uint64_t>(option.value);
  if (!mib || *mib <= above || *mib > kMaxMib) {
    return bad_value(option, fmt::format("a number of MiB above {}", above));
  }
  target = *mib * kMib;
  return {};
}

Status check_divisions(const Option& option, std::string_view value) {
  const auto divisions = number<uint32_t>(value);
  if (divisions && (*divisions == 0 || std::has_single_bit(*divisions))) return {};
  return bad_value(option, "a power of two (or 0), or a list such as [256:1,512:2,>:4]");
}

Status read_divisions(const Option& option, AllocatorSettings& settings) {
  std::string_view rest = option.value;
  if (!option.list) {
    if (Status ok = check_divisions(option, rest); !ok) return ok;
  }
  while (option.list && !rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const size_t colon = item.find(':');
    if (colon == std::string_view::npos) return check_divisions(option, "");
    const std::string_view key = item.substr(0, colon);
    const auto mib = number<uint64_t>(key);
    if (key != ">" && (!mib || !std::has_single_bit(*mib) || *mib > 32768)) {
      return bad_value(option, "a list whose sizes are powers of two in MiB");
    }
    if (Status ok = check_divisions(option, item.substr(colon + 1)); !ok) return ok;
  }
  settings.rules.apply_conf(fmt::format("{}:{}{}{}", option.key, option.list ? "[" : "",
                                        option.value, option.list ? "]" : ""));
  return {};
}

Status read_share(const Option& option, bool zero, bool one, double& target) {
  const auto number = leading_number(option.value);
  const double share = number && number->rest.empty() ? number->value : -1;
  if (!(share >= 0 && share <= 1) || (share == 0 && !zero) || (share == 1 && !one)) {
    return bad_value(option, "between 0 and 1");
  }
  target = share;
  return {};
}

// Known to torch, but without effect on how device memory is allocated.
constexpr std::array<std::string_view, 9> kOtherKeys = {
    "release_lock_on_cudamalloc",       "pinned_use_cuda_host_register",
    "pinned_num_register_threads",      "pinned_use_background_threads",
    "pinned_reserve_segment_size_mb",   "pinned_free_catch_all",
    "pinned_max_round_threshold_mb",    "pinned_max_cached_size_mb",
    "graph_capture_record_stream_reuse"};

Status read_option(const Option& option, AllocatorSettings& settings) {
  const std::string& key = option.key;
  if (key == "roundup_power2_divisions") return read_divisions(option, settings);
  if (option.list) return bad_value(option, "a single value");
  if (key == "expandable_segments") return read_bool(option, settings.rules.expandable_segments);
  if (key == "max_split_size_mb") return read_mib(option, 20, settings.rules.max_split_bytes);
  if (key == "large_segment_size_mb") {
    if (!settings.version.at_least(11)) {
      return Error{fmt::format("torch {} has no setting '{}', which came with 2.11",
                               settings.version.text(), key)};
    }
    return read_mib(option, 10, settings.large_segment_bytes);
  }
  if (key == "max_non_split_rounding_mb") {
    return read_mib(option, 20, settings.max_non_split_bytes);
  }
  if (key == "garbage_collection_threshold") {
    return read_share(option, false, false, settings.gc_threshold);
  }
  if (key == "per_process_memory_fraction") {
    return read_share(option, true, true, settings.memory_fraction);
  }
  if (key == "throw_on_cudamalloc_oom") return read_bool(option, settings.fail_before_driver);
  if (key == "backend") {
    if (option.value == "native") return {};
    return bad_value(option, "native (other backends have no cache to model)");
  }
  if (std::find(kOtherKeys.begin(), kOtherKeys.end(), key) == kOtherKeys.end()) {
    return Error{fmt::format("PyTorch's allocator has no setting '{}'", key)};
  }
  settings.ignored.push_back(key);
  return {};
}

}  // namespace

Result<TorchVersion> TorchVersion::parse(std::string_view text) {
  const std::string_view whole = text;
  if (text.starts_with("torch")) text.remove_prefix(5);
  while (text.starts_with(' ')) text.remove_prefix(1);
  const size_t dot = text.find('.');
  const size_t end =
      dot == std::string_view::npos ? dot : text.find_first_not_of("0123456789", dot + 1);
  if (dot != std::string_view::npos) {
    const auto major = number<uint32_t>(text.substr(0, dot));
    const auto minor = number<uint32_t>(text.substr(dot + 1, end - dot - 1));
    if (major && minor && *major >= 2) return TorchVersion{*major, *minor};
  }
  return Error{fmt::format("'{}' is not a torch version from 2.0 on, such as 2.11", whole)};
}

TieBreak TorchVersion::tie_break() const {
  if (at_least(13)) return TieBreak::kSegment;
  return at_least(12) ? TieBreak::kRegistration : TieBreak::kAddress;
}

std::string TorchVersion::text() const {
  return fmt::format("{}.{}", major, minor);
}

Result<AllocatorSettings> AllocatorSettings::parse(std::string_view conf, TorchVersion version) {
  AllocatorSettings settings;
  settings.version = version;
  settings.rules.one_division_rounds = !version.at_least(4);
  const auto options = options_of(conf);
  if (!options) return options.error();
  for (const Option& option : *options) {
    if (Status ok = read_option(option, settings); !ok) return ok.error();
  }
  // 2.10+: a split limit below the size of the segments to split is rejected.
  if (settings.rules.max_split_bytes < settings.large_segment_bytes) {
    return Error{fmt::format("max_split_size_mb must not be below large_segment_size_mb ({})",
                             settings.large_segment_bytes / kMib)};
  }
  return settings;
}

uint64_t AllocatorSettings::segment_bytes(uint64_t size) const {
  if (size <= kSmallBytes) return kSmallSegmentBytes;
  if (size < kMinLargeBytes) return large_segment_bytes;
  return (size + kSegmentStepBytes - 1) / kSegmentStepBytes * kSegmentStepBytes;
}

}  // namespace tidemark
