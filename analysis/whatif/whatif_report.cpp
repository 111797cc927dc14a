#include "analysis/whatif/whatif_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "analysis/wording.h"

namespace tidemark {

namespace {

struct Candidate {
  std::string conf;
  AllocatorSettings settings;
};

Result<std::vector<Candidate>> parse_all(const std::vector<std::string>& confs,
                                         const TorchVersion& version) {
  std::vector<Candidate> all;
  for (const std::string& conf : confs) {
    const auto settings = AllocatorSettings::parse(conf, version);
    if (!settings) return settings.error();
    all.push_back({conf, *settings});
  }
  return all;
}

// Garbage collection starts at a share of the limit that a memory fraction sets.
bool collects_nothing(const AllocatorSettings& settings, const WhatIf& whatif) {
  return settings.gc_threshold > 0 && settings.memory_fraction == 0 &&
         whatif.recorded_allowed() == 0;
}

// Explains settings without effect: otherwise their rows in the table mislead.
void note_settings(const Candidate& c, const WhatIf& whatif, std::vector<std::string>& notes) {
  if (c.settings.memory_fraction > 0 && whatif.card_bytes() == 0) {
    notes.push_back(fmt::format(
        "{}: the size of the card is not in the recording, so the fraction has no effect; "
        "give the size with --card SIZE",
        c.conf));
  } else if (collects_nothing(c.settings, whatif)) {
    notes.push_back(fmt::format(
        "{}: has an effect only with a memory fraction below 1; add per_process_memory_fraction:F",
        c.conf));
  }
  for (const std::string& key : c.settings.ignored) {
    notes.push_back(fmt::format("{} does not change how device memory is allocated", key));
  }
}

std::string needed_torch(const AllocatorSettings& settings, const WhatIf& whatif) {
  constexpr TorchVersion kSizesSegments{2, 11};
  const bool sizes_segments = settings.large_segment_bytes != kLargeSegmentBytes;
  const bool knows = whatif.knows_version() && whatif.own().version.at_least(kSizesSegments.minor);
  return sizes_segments && !knows ? kSizesSegments.text() : "";
}

// What a run reserves until it dies says nothing about one that lives: the later it dies, the
// better.
bool is_better(const Prediction& a, const Prediction& b) {
  if (a.ended_early && b.ended_early && a.failed_ns != b.failed_ns) {
    return a.failed_ns > b.failed_ns;
  }
  return std::tuple(a.ended_early, a.out_of_memory, b.failures_avoided, a.reserved_peak,
                    a.driver_allocations) < std::tuple(b.ended_early, b.out_of_memory,
                                                       a.failures_avoided, b.reserved_peak,
                                                       b.driver_allocations);
}

// Where a lower limit, which the recording allows as well, might make a difference.
void note_guessed_limit(const WhatIf& whatif, WhatIfDevice& d) {
  const uint64_t lowest = whatif.recorded_reserved_peak();
  const uint64_t highest = whatif.highest_guessed_limit();
  const bool decides = std::any_of(
      d.predictions.begin(), d.predictions.end(),
      [&](const Prediction& p) { return !p.out_of_memory && p.reserved_peak > lowest; });
  if (highest <= lowest || !decides) return;
  const auto [least, most] = size_texts(lowest, highest);
  d.notes.push_back(fmt::format(
      "the limit is between {} and {}, as emptied caches tell, and the predictions assume the "
      "highest: if it is lower, those that reserve more than {} empty the cache more often or run "
      "out of memory",
      least, most, least));
}

WhatIfDevice answer(const WhatIf& whatif, std::vector<Candidate> candidates, bool all) {
  WhatIfDevice d;
  d.own_conf = whatif.own_conf();
  d.recorded_reserved_peak = whatif.recorded_reserved_peak();
  d.recorded_allocated_peak = whatif.recorded_allocated_peak();
  d.baseline = whatif.baseline();
  d.card_bytes = whatif.card_bytes();
  d.other_bytes = whatif.other_bytes();
  d.replay = whatif.own();
  d.ends_at_error = whatif.ends_at_error();
  d.notes = whatif.notes();
  if (all) {
    for (const std::string& conf : sensible_confs()) {
      const auto settings = AllocatorSettings::parse(conf, whatif.own().version);
      if (settings && !collects_nothing(*settings, whatif)) candidates.push_back({conf, *settings});
    }
  }
  for (const Candidate& c : candidates) note_settings(c, whatif, d.notes);
  for (const Candidate& c : candidates) {
    d.predictions.push_back(whatif.predict(c.settings, c.conf));
    d.predictions.back().needs_torch = needed_torch(c.settings, whatif);
  }
  note_guessed_limit(whatif, d);
  if (all) {
    std::stable_sort(d.predictions.begin(), d.predictions.end(), is_better);
  }
  return d;
}

}  // namespace

Error nothing_to_replay(const TraceModel& model, const std::optional<Error>& reason, bool chosen) {
  const bool read =
      std::any_of(model.processes.begin(), model.processes.end(),
                  [](const ProcessModel& p) { return !p.framework.empty() && !p.is_state_only(); });
  if (!read && model.damage.any()) {
    return Error{model.path +
                 ": the file is damaged or truncated, and none of its events could be read"};
  }
  if (reason) return Error{model.path + ": " + reason->message};
  return Error{model.path + ": no PyTorch allocator events " +
               (chosen ? "on that rank and device"
                       : "in this recording; a snapshot that was taken with a history has them")};
}

Result<WhatIfReport> make_whatif_report(const TraceModel& model, const WhatIfQuestion& question) {
  const auto candidates =
      parse_all(question.confs, question.options.version.value_or(TorchVersion{}));
  if (!candidates) return candidates.error();
  WhatIfReport report;
  report.path = model.path;
  report.start_ns = model.start_ns;
  std::optional<Error> reason;
  for (const ProcessModel& process : model.processes) {
    if (question.rank && process.info.rank != *question.rank) continue;
    for (const AllocationHistory& framework : process.framework) {
      if (question.device && framework.device != *question.device) continue;
      const Result<WhatIf> whatif = WhatIf::prepare(process, framework.device, question.options);
      if (!whatif) {
        if (!framework.allocations.empty() || !reason) reason = whatif.error();
        continue;
      }
      WhatIfDevice d = answer(*whatif, *candidates, question.all);
      if (question.options.card_bytes != 0 && !framework.failures.empty()) {
        d.notes.insert(d.notes.begin(),
                       "memory ran out in the recording: its own limit counts, not that of --card");
      }
      d.rank = process.info.rank;
      d.pid = process.info.pid;
      d.file = process.file;
      d.device = framework.device;
      if (const Device* card = process.device(framework.device)) {
        d.card_name = process.names.string(card->name);
      }
      report.devices.push_back(std::move(d));
    }
  }
  if (!report.devices.empty()) return report;
  return nothing_to_replay(model, reason, question.rank || question.device);
}

}  // namespace tidemark
