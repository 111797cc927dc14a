#include "cli/keep_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "proto/base/units.h"

namespace tidemark::cli {

Result<std::string> KeepOptions::limits() const {
  const std::string text = fmt::format("{}", fmt::join(keep, ","));
  if (!keep.empty() && !parse_keep(text)) {
    return Error{fmt::format(
        "--keep '{}' is neither a duration (10m) nor a size (512MiB), nor one of each", text)};
  }
  if (!seal_above.empty() && !parse_bytes(seal_above)) {
    return Error{fmt::format("--seal-above '{}' is not a size like 60GiB", seal_above)};
  }
  return text;
}

void add_keep(CLI::App& command, KeepOptions& options) {
  CLI::Option* const keep =
      command
          .add_option("--keep", options.keep,
                      "keep only the last stretch: a duration (10m), a size (512MiB), or both")
          ->type_name("LIMIT")
          ->expected(1)
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command
      .add_option("--seal-above", options.seal_above,
                  "with --keep: seal when a device's reserved memory exceeds this size")
      ->needs(keep);
}

}  // namespace tidemark::cli
