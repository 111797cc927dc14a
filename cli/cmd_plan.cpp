#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <optional>

#include "analysis/plan/plan_report.h"
#include "analysis/report/growth_finding.h"
#include "cli/command.h"
#include "cli/terminal.h"
#include "cli/unit_options.h"
#include "collector/output_guard.h"
#include "export/plan/plan_text.h"
#include "proto/base/output_file.h"

namespace tidemark::cli {

namespace {

struct Options {
  std::string path;
  std::string other;
  std::string batch;
  std::string seq;
  std::string precision;
  std::string optimizer;
  std::vector<std::string> checkpoint;
  bool checkpoints = false;
  std::string shard;
  uint32_t ranks = 0;
  std::string card;
  std::optional<std::string> alloc_conf;
  std::optional<std::string> recorded_conf;
  std::string torch;
  bool fit = false;
  uint64_t samples = 0;
  std::optional<int64_t> rank;
  std::optional<int64_t> device;
  std::string picture;
  bool json = false;
};

// Sets `into` to what `parse` makes of a text, if there is one.
template <typename Parse, typename Into>
Status read(const std::string& text, const Parse& parse, Into& into) {
  if (text.empty()) return {};
  const auto value = parse(text);
  if (!value) return value.error();
  into = *value;
  return {};
}

Status read_sharding(const Options& options, PlanChange& change) {
  if (Status ok = read(options.shard, parse_shard, change.shard); !ok) return ok;
  if (options.ranks != 0) change.ranks = options.ranks;
  if (change.shard != PlanShard::kNone && change.ranks < 2) {
    return Error{"--shard needs --ranks N, at least 2"};
  }
  if (options.ranks > 1 && change.shard == PlanShard::kNone) {
    return Error{"--ranks needs --shard ddp, zero1, zero2 or zero3"};
  }
  return {};
}

Status read_confs(const Options& options, PlanQuestion& question) {
  if (options.alloc_conf) {
    const auto settings = AllocatorSettings::parse(*options.alloc_conf);
    if (!settings) {
      return Error{"--alloc-conf '" + *options.alloc_conf + "': " + settings.error().message};
    }
    question.change.alloc_conf = *options.alloc_conf;
    question.change.has_conf = true;
  }
  if (options.recorded_conf) {
    const auto settings = AllocatorSettings::parse(*options.recorded_conf);
    if (!settings) {
      return Error{"--recorded-conf '" + *options.recorded_conf + "': " + settings.error().message};
    }
    question.options.whatif.recorded_conf = options.recorded_conf;
  }
  if (!options.torch.empty()) {
    const auto version = TorchVersion::parse(options.torch);
    if (!version) return Error{"--torch: " + version.error().message};
    question.options.whatif.version = *version;
  }
  return {};
}

Result<PlanQuestion> question_of(const Options& options) {
  PlanQuestion question;
  PlanChange& change = question.change;
  const auto factor = [](std::string_view option) {
    return [option](std::string_view text) { return parse_factor(option, text); };
  };
  for (const Status& ok : {read(options.batch, factor("--batch"), change.batch),
                           read(options.seq, factor("--seq"), change.seq),
                           read(options.precision, parse_precision, change.precision),
                           read(options.optimizer, parse_optimizer, change.optimizer),
                           read_sharding(options, change), read_confs(options, question)}) {
    if (!ok) return ok.error();
  }
  change.checkpoint = options.checkpoints;
  for (const std::string& module : options.checkpoint) {
    if (!module.empty()) change.checkpoint_modules.push_back(module);
  }
  if (!options.card.empty()) {
    const Result<uint64_t> bytes = parse_card(options.card);
    if (!bytes) return bytes.error();
    question.options.whatif.card_bytes = *bytes;
  }
  if (!options.picture.empty() && !options.picture.ends_with(".svg")) {
    return Error{"--picture '" + options.picture + "' must end in .svg"};
  }
  question.rank = options.rank;
  question.device = options.device;
  question.fit = options.fit;
  question.samples = options.samples;
  return question;
}

// A plan holds for as many steps as were recorded.
void note_growth(const TraceModel& model, PlanReport& plan) {
  const Result<Report> report = make_report(model, {});
  if (!report) return;
  for (PlanDevice& d : plan.devices) {
    const Finding* growth = growth_on(report->findings, d.rank, d.pid, d.file, d.device);
    if (growth == nullptr) continue;
    d.growth = growth->id;
    d.outcome.assumptions.push_back(
        fmt::format("memory grows in this recording ({}, see tidemark report): a longer run needs "
                    "more than is planned here, with any batch",
                    growth->id));
  }
}

int run(const Options& options) {
  const Result<PlanQuestion> question = question_of(options);
  if (!question) return fail(question.error());
  if (!options.picture.empty()) {
    const std::array inputs = {options.path, options.other.empty() ? options.path : options.other};
    if (Status allowed = check_output(options.picture, inputs); !allowed) {
      return fail(allowed.error());
    }
  }
  const Result<LoadedTrace> trace = load_with_progress(options.path);
  if (!trace) return fail(trace.error());
  warn_of_losses(trace->model);
  std::optional<LoadedTrace> other;
  if (!options.other.empty()) {
    Result<LoadedTrace> second = load_with_progress(options.other);
    if (!second) return fail(second.error());
    other.emplace(std::move(*second));
  }
  Result<PlanReport> report =
      make_plan_report(trace->model, other ? &other->model : nullptr, *question);
  if (!report) return fail(report.error());
  note_growth(trace->model, *report);
  if (!options.picture.empty()) {
    if (const Status ok = write_file(options.picture, plan_as_svg(*report)); !ok) {
      return fail(ok.error());
    }
  }
  const std::string text =
      options.json ? plan_as_json(*report) : plan_as_text(*report, stdout_has_colour());
  std::fwrite(text.data(), 1, text.size(), stdout);
  return kOk;
}

void add_changes(CLI::App* command, Options& options) {
  command->add_option("--batch", options.batch, "batch size, as a factor of the recorded one: 2x");
  command->add_option("--seq", options.seq, "length of sequences, as a factor: 2x");
  command->add_option("--precision", options.precision,
                      "bf16 or fp16: the whole model in 16 bits; fp32: one in 64 bits in 32; "
                      "autocast: operations only");
  command->add_option("--optimizer", options.optimizer,
                      "adamw, adamw8bit, fused, sgd or sgd-momentum");
  command
      ->add_option("--checkpoint", options.checkpoint,
                   "recompute these nn.Modules in the backward pass: paths (layers.*) or classes, "
                   "separated by commas; alone: the repeated layers")
      ->expected(0, 1)
      ->delimiter(',');
  command->add_option("--ranks", options.ranks, "number of ranks, with --shard");
  command->add_option("--shard", options.shard, "ddp, zero1, zero2 or zero3 (FSDP2)");
  command->add_option("--card", options.card,
                      "size of the card (80GiB); default: the recorded one");
  command->add_option("--alloc-conf", options.alloc_conf,
                      "settings as in PYTORCH_CUDA_ALLOC_CONF: key:value,key:value");
}

}  // namespace

void add_plan(CLI::App& app, int& code) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("plan", "predict the memory that a changed program would need");
  command->add_option("PATH", options->path, "a trace, a directory of traces, or a snapshot")
      ->required();
  command->add_option("OTHER", options->other,
                      "a second recording of the program with another batch size or sequence "
                      "length: what grows is learnt from the two");
  add_changes(command, *options);
  command->add_flag("--fit", options->fit,
                    "find the largest batch that fits the card, and the cheapest changes if the "
                    "program does not fit");
  command->add_option("--recorded-batch", options->samples,
                      "batch size of the recorded run, so that --fit finds a whole number");
  command->add_option("--picture", options->picture,
                      "write a picture of the recorded and the planned curve: FILE.svg");
  command->add_flag("--json", options->json, "print JSON, schema tidemark.plan/1");
  command->add_option("--rank", options->rank, "only this rank");
  command->add_option("--device", options->device, "only this device");
  command->add_option("--recorded-conf", options->recorded_conf,
                      "allocator settings of the recorded run, if the recording lacks them");
  command->add_option("--torch", options->torch,
                      "version of PyTorch (2.11), if the recording does not contain it");
  command->footer(
      "Examples:\n"
      "  tidemark plan run.tmk --batch 2x --card 80GiB\n"
      "  tidemark plan batch8.tmk batch16.tmk --batch 4x --picture plan.svg\n"
      "  tidemark plan run.tmk --checkpoint --optimizer adamw8bit --json\n"
      "  tidemark plan run.tmk --fit --card 24GiB --recorded-batch 32");
  command->callback([options, command, &code] {
    options->checkpoints = command->count("--checkpoint") != 0;
    code = run(*options);
  });
}

}  // namespace tidemark::cli
