#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>

#include "analysis/insight/card/limit.h"
#include "analysis/report/growth_finding.h"
#include "analysis/whatif/whatif_report.h"
#include "analysis/wording.h"
#include "cli/command.h"
#include "cli/terminal.h"
#include "cli/unit_options.h"
#include "export/whatif/whatif_json.h"
#include "export/whatif/whatif_text.h"

namespace tidemark::cli {

namespace {

struct Options {
  std::string path;
  std::vector<std::string> confs;
  std::optional<int64_t> rank;
  std::optional<int64_t> device;
  std::string card;
  std::optional<std::string> recorded_conf;
  std::string torch;
  bool all = false;
  bool json = false;
};

Result<WhatIfQuestion> question_of(const Options& options) {
  WhatIfQuestion question;
  question.confs = options.confs;
  question.rank = options.rank;
  question.device = options.device;
  question.all = options.all;
  if (question.confs.empty() && !question.all) {
    return Error{"whatif needs --alloc-conf KEY:VALUE or --all; see tidemark whatif --help"};
  }
  for (const std::string& conf : question.confs) {
    if (const auto settings = AllocatorSettings::parse(conf); !settings) {
      return Error{"--alloc-conf '" + conf + "': " + settings.error().message};
    }
  }
  if (options.recorded_conf) {
    const auto settings = AllocatorSettings::parse(*options.recorded_conf);
    if (!settings) {
      return Error{"--recorded-conf '" + *options.recorded_conf + "': " + settings.error().message};
    }
    question.options.recorded_conf = options.recorded_conf;
  }
  if (!options.card.empty()) {
    const Result<uint64_t> bytes = parse_card(options.card);
    if (!bytes) return bytes.error();
    question.options.card_bytes = *bytes;
  }
  if (!options.torch.empty()) {
    const auto version = TorchVersion::parse(options.torch);
    if (!version) return Error{"--torch: " + version.error().message};
    question.options.version = *version;
  }
  return question;
}

// A recording may show only that a memory fraction refused, not where its limit was.
void note_uncertain_limits(const TraceModel& model, WhatIfReport& report) {
  for (WhatIfDevice& d : report.devices) {
    for (const ProcessModel& process : model.processes) {
      const AllocationHistory* history = process.framework_on(d.device);
      if (process.info.rank != d.rank || history == nullptr) continue;
      const MemoryLimit limit = limit_of(process, *history);
      const bool failed = std::any_of(
          d.predictions.begin(), d.predictions.end(),
          [&](const Prediction& p) { return p.out_of_memory && p.limit_bytes == limit.bytes; });
      if (!limit.at_least || !failed) continue;
      d.notes.push_back(fmt::format(
          "a memory fraction was the limit: at least {}, and it is not known how much more; above "
          "that, requests that fail here may fit",
          size_text(limit.bytes)));
      break;
    }
  }
}

void note_growth(const TraceModel& model, WhatIfReport& whatif) {
  const Result<Report> report = make_report(model, {});
  if (!report) return;
  for (WhatIfDevice& d : whatif.devices) {
    const Finding* growth = growth_on(report->findings, d.rank, d.pid, d.file, d.device);
    if (growth != nullptr) d.growth = growth->id;
  }
}

int run(const Options& options) {
  const Result<WhatIfQuestion> question = question_of(options);
  if (!question) return fail(question.error());
  const Result<LoadedTrace> trace = load_with_progress(options.path);
  if (!trace) return fail(trace.error());
  warn_of_losses(trace->model);
  Result<WhatIfReport> report = make_whatif_report(trace->model, *question);
  if (!report) return fail(report.error());
  note_uncertain_limits(trace->model, *report);
  note_growth(trace->model, *report);
  const std::string text =
      options.json ? whatif_as_json(*report) : whatif_as_text(*report, stdout_has_colour());
  std::fwrite(text.data(), 1, text.size(), stdout);
  return kOk;
}

}  // namespace

void add_whatif(CLI::App& app, int& code) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("whatif", "predict the memory use with other allocator settings");
  command->add_option("PATH", options->path, "a trace, a directory of traces, or a snapshot")
      ->required();
  command
      ->add_option("--alloc-conf", options->confs,
                   "settings as in PYTORCH_CUDA_ALLOC_CONF: key:value,key:value; may be repeated")
      ->expected(1)
      ->take_all();
  command->add_flag("--all", options->all, "try common settings; the best comes first");
  command->add_flag("--json", options->json, "print JSON, schema tidemark.whatif/1");
  command->add_option("--rank", options->rank, "only this rank");
  command->add_option("--device", options->device, "only this device");
  command->add_option("--card", options->card,
                      "size of the card (80GiB), if the recording does not contain it");
  command->add_option(
      "--recorded-conf", options->recorded_conf,
      "allocator settings of the recorded run, if the recording does not contain them");
  command->add_option("--torch", options->torch,
                      "version of PyTorch (2.11), if the recording does not contain it");
  command->footer(
      "Examples:\n"
      "  tidemark whatif snapshot.pickle.gz --alloc-conf expandable_segments:True\n"
      "  tidemark whatif run.tmk --all\n"
      "  tidemark whatif run.tmk --alloc-conf max_split_size_mb:64 --card 24GiB --json");
  command->callback([options, &code] { code = run(*options); });
}

}  // namespace tidemark::cli
