#include "collector/output_guard.h"

#include <sys/stat.h>

#include <filesystem>
#include <string_view>
#include <system_error>

#include "collector/recover/trace_file.h"

namespace tidemark {

namespace {

namespace fs = std::filesystem;

// What an interrupted recording had not yet written lies beside its trace.
constexpr std::string_view kRing = ".ring";

bool same_file(const struct stat& output, const fs::path& input) {
  struct stat info {};
  return ::stat(input.c_str(), &info) == 0 && info.st_dev == output.st_dev &&
         info.st_ino == output.st_ino;
}

}  // namespace

Status check_output(const std::string& output, std::span<const std::string> inputs) {
  struct stat info {};
  if (::stat(output.c_str(), &info) != 0) return {};  // a new file
  for (const std::string& input : inputs) {
    if (same_file(info, input) || same_file(info, input + std::string(kRing))) {
      return Error{output + ": is also the input; choose another name for the output"};
    }
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(input, error)) {
      std::string name = entry.path().filename().string();
      if (name.ends_with(kRing)) name.resize(name.size() - kRing.size());
      if (is_input_name(name) && same_file(info, entry.path())) {
        return Error{output + ": is part of the input " + input +
                     "; choose another name for the output"};
      }
    }
  }
  return {};
}

}  // namespace tidemark
