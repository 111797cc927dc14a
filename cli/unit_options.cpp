#include "cli/unit_options.h"

#include <optional>

#include "proto/base/units.h"

namespace tidemark::cli {

Result<uint64_t> parse_size(const std::string& option, const std::string& text) {
  const std::optional<uint64_t> bytes = parse_bytes(text);
  if (!bytes)
    return Error{option + " takes a size such as 40GiB, 512M (MiB) or 40GB (10^9 bytes), not '" +
                 text + "'"};
  return *bytes;
}

Result<uint64_t> parse_memory(const std::string& option, const std::string& text) {
  constexpr uint64_t kLeast = 1 << 20;  // "12" of somebody who means GiB
  const Result<uint64_t> bytes = parse_size(option, text);
  const bool has_unit = text.find_first_not_of("0123456789.") != std::string::npos;
  if (bytes && !has_unit && *bytes != 0 && *bytes < kLeast) {
    return Error{option + " " + text + " would be bytes; did you mean " + text + "GiB?"};
  }
  return bytes;
}

Result<uint64_t> parse_card(const std::string& text) {
  const Result<uint64_t> bytes = parse_memory("--card", text);
  if (bytes && *bytes == 0) return Error{"--card takes the size of a card such as 24GiB, not 0"};
  return bytes;
}

Result<std::chrono::milliseconds> parse_duration(const std::string& option,
                                                 const std::string& text) {
  const std::optional<int64_t> ns = parse_duration_ns(text);
  if (!ns || *ns == 0) {
    return Error{option + " takes a duration such as 60s, 5m or 2h, not '" + text + "'"};
  }
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::nanoseconds(*ns));
}

Status check_keep(const std::string& text) {
  const std::optional<KeepLimits> limits = parse_keep(text);
  if (!limits) {
    return Error{"--keep '" + text +
                 "' is neither a duration (10m) nor a size (512MiB), nor one of each"};
  }
  if (!keeps_enough(*limits)) {
    return Error{"--keep '" + text + "' is too little: keep at least " + kLeastKeepText};
  }
  return {};
}

void add_overhead(CLI::App& command, std::string& text) {
  command
      .add_option(
          "--overhead", text,
          "share of the time that recording may cost (default: 2%); kernels are recorded in\n"
          "bursts to stay below it. off: record every kernel")
      ->type_name("SHARE");
}

std::optional<Error> overhead_error(const std::string& text) {
  if (parse_overhead(text)) return std::nullopt;
  return Error{"--overhead takes a share such as 2% or 0.5%, or off, not '" + text + "'"};
}

}  // namespace tidemark::cli
