// What the subcommands share. Each file cli/cmd_X.cpp registers one command with the parser.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "analysis/report/report.h"
#include "collector/trace_source.h"
#include "proto/base/result.h"

namespace tidemark {
struct JobSummaries;
}

namespace tidemark::cli {

// Exit codes of every command.
inline constexpr int kOk = 0;
inline constexpr int kNo = 1;     // the answer is "no"
inline constexpr int kUsage = 2;  // bad usage or unreadable input

// Each function adds its command to the parser; the command stores its exit code in `code`.
void add_import(CLI::App& app, int& code);
void add_info(CLI::App& app, int& code);
void add_merge(CLI::App& app, int& code);
void add_prepare(CLI::App& app, int& code);
void add_recover(CLI::App& app, int& code);
void add_report(CLI::App& app, int& code);
void add_diff(CLI::App& app, int& code);
void add_check(CLI::App& app, int& code);
void add_run(CLI::App& app, int& code);
void add_ps(CLI::App& app, int& code);
void add_attach(CLI::App& app, int& code);
void add_detach(CLI::App& app, int& code);
void add_seal(CLI::App& app, int& code);
void add_serve(CLI::App& app, int& code);
void add_snapshot(CLI::App& app, int& code);
void add_view(CLI::App& app, int& code);
void add_export(CLI::App& app, int& code);
void add_doctor(CLI::App& app, int& code);
void add_whatif(CLI::App& app, int& code);
void add_plan(CLI::App& app, int& code);
void add_bridge(CLI::App& app, int& code);
void add_version(CLI::App& app, int& code);

// Prints one line on stderr; returns kUsage.
int fail(const Error& error);
// Prints one line on stderr; the command goes on.
void warn(const std::string& text);
// The same about a file or directory, which is named first unless the text begins with its name.
void warn_about(const std::string& path, const std::string& text);
// Printed before a compiler runs, which takes seconds.
void announce_bridge(const std::string& torch_version);

// Writes the names of native functions into a trace or into the traces of a directory: they can
// only be found on the machine that has the programs. Frames without a name stay as they are.
// Returns how many frames got a name.
uint64_t name_traces(const std::string& path);
uint64_t name_traces(const std::vector<std::string>& files);

struct LoadedTrace {
  TraceSource source;
  TraceModel model;
};
// Of the files of a directory that could not be used, and of clocks: warned of, or left to the text
// that the command prints.
enum class FileNotes : uint8_t { kWarn, kInText };
// Opens and loads a trace, with a progress bar.
Result<LoadedTrace> load_with_progress(const std::string& path, FileNotes notes = FileNotes::kWarn);
// The summaries of a job of very many ranks, with a progress bar.
Result<JobSummaries> read_job_with_progress(const std::string& path, uint64_t card_bytes = 0,
                                            FileNotes notes = FileNotes::kWarn);
// Warns of what was lost in the trace, for commands that do not print a report.
void warn_of_losses(const TraceModel& model);

// For --fail-on: an Error unless every word is the id of a finding or "any".
Status check_finding_ids(const std::vector<std::string>& ids);
// Findings of severity warning or above that the ids name. With `or_errors` and no ids: the errors.
std::vector<Finding> failing_findings(const Report& report, const std::vector<std::string>& ids,
                                      bool or_errors);

}  // namespace tidemark::cli
