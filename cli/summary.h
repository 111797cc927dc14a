// The result of a recording, in a few lines on stderr.
#pragma once

#include <string>
#include <vector>

namespace tidemark::cli {

// A directory name with the current time, for traces without -o.
std::string default_directory();

// The traces in a directory that the processes of one launch recorded (LaunchResult::run). Files
// that cannot be read are not among them.
std::vector<std::string> traces_of_run(const std::string& directory, const std::string& run);

// Of traces of one directory that were recorded together: what was recorded, the highest peak, and
// what to do next. The directory may have other traces too.
void print_summary(const std::string& directory, const std::vector<std::string>& traces);

}  // namespace tidemark::cli
