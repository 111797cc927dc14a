#include <cstdio>

#include "cli/command.h"
#include "proto/base/version.h"
#include "proto/frame.h"

namespace tidemark::cli {

void add_version(CLI::App& app, int& code) {
  CLI::App* command =
      app.add_subcommand("version", "print the version of tidemark and of its trace format");
  command->footer("Example:\n  tidemark version");
  command->callback([&code] {
    std::printf("tidemark %.*s (trace format %u.%u)\n", static_cast<int>(kVersion.size()),
                kVersion.data(), kFormatMajor, kFormatMinor);
    code = kOk;
  });
}

}  // namespace tidemark::cli
