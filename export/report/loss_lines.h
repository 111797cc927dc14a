// What is missing from a trace, one sentence per line: files, damaged blocks, dropped events.
#pragma once

#include <string>
#include <vector>

#include "analysis/report/report.h"

namespace tidemark {

std::vector<std::string> loss_lines(const Report& report);
// Of the processes that were killed or did not exit normally.
std::vector<std::string> killed_lines(const Report& report);
// Of one device, each beginning with `where`.
std::vector<std::string> loss_lines(const DeviceReport& device, const std::string& where,
                                    const Damage& damage);
// Without the notes on the files, and without what is known per device only after a report.
std::vector<std::string> loss_lines(const TraceModel& model);

}  // namespace tidemark
