#include "cli/command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>
#include <vector>

#include "analysis/findings/rules.h"
#include "analysis/names/trace_names.h"
#include "analysis/wording.h"
#include "cli/terminal.h"
#include "collector/job/job.h"
#include "export/report/loss_lines.h"
#include "summary/job_summaries.h"

namespace tidemark::cli {

int fail(const Error& error) {
  print_line(stderr, "tidemark: " + error.message);
  return kUsage;
}

void announce_bridge(const std::string& torch_version) {
  fmt::print(stderr,
             "tidemark: compiling the bridge to PyTorch {} (only once; takes a few seconds)\n",
             torch_version);
}

void warn(const std::string& text) {
  print_line(stderr, "tidemark: warning: " + text);
}

void warn_about(const std::string& path, const std::string& text) {
  warn(path.empty() || text.starts_with(path) ? text : path + ": " + text);
}

uint64_t name_traces(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<std::string> files;
  if (!fs::exists(path, error)) return 0;
  if (!fs::is_directory(path, error)) files.push_back(path);
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".tmk") files.push_back(it->path().string());
  }
  return name_traces(files);
}

uint64_t name_traces(const std::vector<std::string>& files) {
  uint64_t named = 0;
  ProgressBar bar("naming functions");
  for (size_t i = 0; i < files.size(); ++i) {
    const Result<uint64_t> count = write_names(files[i], [&](double share) {
      bar.set((static_cast<double>(i) + share) / static_cast<double>(files.size()));
    });
    if (count) {
      named += *count;
    } else {
      warn(count.error().message);
    }
  }
  return named;
}

// A merged file holds the ranks that were there.
static std::string missing_ranks(const TraceModel& model) {
  std::set<uint64_t> ranks;
  uint64_t world = 0;
  uint64_t nameless = 0;
  for (const ProcessModel& process : model.processes) {
    nameless += process.info.source == Source::kNone;
    if (process.info.rank < 0) continue;
    ranks.insert(static_cast<uint64_t>(process.info.rank));
    world =
        std::max({world, process.info.world_size, static_cast<uint64_t>(process.info.rank) + 1});
  }
  return note_on_missing_ranks(ranks, world, nameless);
}

Result<LoadedTrace> load_with_progress(const std::string& path, FileNotes notes) {
  const auto say = [&](const std::string& text) {
    if (notes == FileNotes::kWarn) warn_about(path, text);
  };
  Result<TraceSource> source = open_trace(path);
  if (!source) return source.error();
  for (const std::string& warning : source->warnings) say(warning);
  ProgressBar bar("reading");
  Result<TraceModel> model = load_trace(source->readers, [&](double share) { bar.set(share); });
  if (!model) return model.error();
  model->path = path;
  model->notes = source->warnings;
  const std::string missing = missing_ranks(*model);
  model->incomplete = source->incomplete || !missing.empty();
  if (!missing.empty() && source->readers.size() == 1) {
    say(missing);
    model->notes.push_back(missing);
  }
  return LoadedTrace{std::move(*source), std::move(*model)};
}

Result<JobSummaries> read_job_with_progress(const std::string& path, uint64_t card_bytes,
                                            FileNotes notes) {
  Result<JobSummaries> job = [&] {
    ProgressBar bar("reading");
    SummaryOptions options;
    options.card_bytes = card_bytes;
    options.progress = [&](double share) { bar.set(share); };
    return read_job(path, options);
  }();
  if (!job) return job;
  if (notes == FileNotes::kWarn) {
    for (const std::string& note : job->notes) warn_about(path, note);
  }
  if (job->made != 0 && card_bytes == 0) {
    print_line(stderr, fmt::format("tidemark: {} read without a summary; 'tidemark prepare {}' "
                                   "keeps summaries for the next time",
                                   counted(job->made, "trace"), path));
  }
  return job;
}

void warn_of_losses(const TraceModel& model) {
  for (const std::string& line : loss_lines(model)) warn_about(model.path, line);
}

Status check_finding_ids(const std::vector<std::string>& ids) {
  const std::vector<std::string> known = finding_ids();
  for (const std::string& id : ids) {
    if (id == "any" || std::find(known.begin(), known.end(), id) != known.end()) continue;
    return Error{
        fmt::format("unknown finding '{}'; known findings: {}", id, fmt::join(known, ", "))};
  }
  return {};
}

std::vector<Finding> failing_findings(const Report& report, const std::vector<std::string>& ids,
                                      bool or_errors) {
  std::vector<Finding> failing;
  for (const Finding& f : report.findings) {
    if (f.severity == kInfo) continue;
    const bool named = std::any_of(
        ids.begin(), ids.end(), [&](const std::string& id) { return id == "any" || id == f.id; });
    if (named || (ids.empty() && or_errors && f.severity == kError)) failing.push_back(f);
  }
  return failing;
}

}  // namespace tidemark::cli
