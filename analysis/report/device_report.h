// The part of a report that describes one device of one process.
#pragma once

#include <cstdint>
#include <string>

#include "analysis/findings/evidence.h"
#include "analysis/report/report.h"

namespace tidemark {

// Also gives the evidence its ledger.
DeviceReport device_report(DeviceEvidence& evidence, const ReportOptions& options,
                           int64_t start_ns);

// `reading`: the highest one of the card.
void set_card_peak(DeviceReport& d, const Peak& reading);

// A process of a job may begin later and end earlier than the job. Empty: it was there.
std::string note_on_absence(const ProcessModel& process, const Instant& at, int64_t start_ns,
                            int64_t margin_ns = 0);

}  // namespace tidemark
