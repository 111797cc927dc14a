#include "export/plan/plan_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>

#include "analysis/insight/module_tree.h"
#include "analysis/wording.h"
#include "export/report/layer_table.h"
#include "export/report/report_wording.h"
#include "export/styled_text.h"

namespace tidemark {

namespace {

class TextPlan : StyledLines {
 public:
  TextPlan(const PlanReport& report, bool colour) : StyledLines(colour), report_(report) {}

  std::string run() {
    line(bold(report_.path));
    for (const PlanDevice& d : report_.devices) device(d);
    return std::move(out_);
  }

 private:
  void device(const PlanDevice& d) {
    device_title(process_title(report_.devices, d), d.device, d.card_name);
    line(styled("  recorded  {} reserved, {} allocated{}",
                bold(size_text(d.recorded_reserved_peak)), size_text(d.recorded_allocated_peak),
                failure_text(d)));
    if (size_text(d.replayed_reserved_peak) != size_text(d.recorded_reserved_peak)) {
      line(
          styled("  replayed  {} reserved, without a change", size_text(d.replayed_reserved_peak)));
    }
    line(styled("  plan      {}", bold(change_text(d, report_.change))));
    outcome("            ", d.outcome);
    card(d, d.outcome);
    shares(d.outcome);
    layers(d.outcome);
    if (d.fit) fit(d, *d.fit);
    line();
    for (const std::string& text : d.outcome.assumptions) line(dim("  - " + text));
  }

  static std::string failure_text(const PlanDevice& d) {
    if (d.ends_at_error) {
      return fmt::format(
          "; the recording ends with an out-of-memory error{}",
          d.other_device_failed ? fmt::format(" of cuda:{}", *d.other_device_failed) : "");
    }
    return d.ran_out ? "; out of memory, after which the program went on" : "";
  }

  static std::string change_text(const PlanDevice& d, const PlanChange& change) {
    return change.text() + (d.may_divide_batch && change.batch != 1
                                ? ", taken as what one pass gets (micro-batch, chunk)"
                                : "");
  }

  std::string cheapest_text(const PlanDevice& d, const PlanChange& change) const {
    const double samples = change.batch * static_cast<double>(report_.samples);
    return change_text(d, change) +
           (change.batch != 1 && samples >= 1
                ? fmt::format(" ({})",
                              counted(static_cast<uint64_t>(std::llround(samples)), "sample"))
                : "");
  }

  void outcome(std::string_view indent, const PlanOutcome& o) {
    line(styled("{}{} reserved{}, {} allocated{}", indent, bold(size_text(o.likely.reserved_peak)),
                range_text(o.low_reserved, o.high_reserved), size_text(o.likely.allocated_peak),
                range_text(o.low_allocated, o.high_allocated)));
  }

  static std::string range_text(uint64_t least, uint64_t most) {
    if (most - least <= most / 200) return "";  // the two ends would look alike
    const auto [low, high] = size_texts(least, most);
    return fmt::format(" ({} to {})", low, high);
  }

  void card(const PlanDevice& d, const PlanOutcome& o) {
    if (d.capacity == 0 && d.card_bytes != 0) {
      line(paint(fmt::format("  card      {}: no room for PyTorch beside {} of {}",
                             size_text(d.card_bytes), size_text(d.other_bytes),
                             d.is_other_card ? "CUDA and libraries" : "others"),
                 "1;31"));
      return;
    }
    if (d.capacity == 0) {
      line("  card      not known: give its size with --card SIZE");
      return;
    }
    line(styled("  card      {}: {}", room_text(d), verdict(d, o)));
  }

  static std::string room_text(const PlanDevice& d) {
    if (d.card_bytes == 0) return fmt::format("limit {}", size_text(d.capacity));
    if (d.card_bytes == d.capacity) return size_text(d.card_bytes);
    return fmt::format("{}, of which {} for PyTorch{}", size_text(d.card_bytes),
                       size_text(d.capacity), held_text(d));
  }

  static std::string held_text(const PlanDevice& d) {
    if (d.capacity_source == LimitSource::kFraction) return ", as its memory fraction allows";
    if (d.capacity_source == LimitSource::kDriver) {
      return ", as the driver refused memory beyond that in the recording";
    }
    if (d.other_bytes == 0 || d.assumes_other) return "";
    if (!d.is_other_card) {
      return fmt::format(" (CUDA and others held {} in the recording)", size_text(d.other_bytes));
    }
    return fmt::format(
        " (this process held {} outside PyTorch{})", size_text(d.other_bytes),
        d.leaves_others ? ", without the other processes of the recording" : " in the recording");
  }

  StyledText verdict(const PlanDevice& d, const PlanOutcome& o) {
    const Prediction& p = *o.on_card;
    if (p.out_of_memory) {
      return paint(
          fmt::format("OUT OF MEMORY, a request of {} does not fit", size_text(p.failed_bytes)),
          "1;31");
    }
    const bool recorded_only = d.ends_at_error || !d.growth.empty();
    const std::string left = size_text(d.capacity - p.reserved_peak);
    std::string text = recorded_only ? "what was recorded " : "";
    text += o.may_not_fit ? fmt::format("may not fit: {}, it does not; {} left as planned",
                                        upper_end(d, o), left)
                          : fmt::format("fits, {} left", left);
    text += emptied_text(o);
    if (!d.growth.empty()) {
      return paint(text + fmt::format("; memory grows ({}), so a longer run needs more", d.growth),
                   "33");
    }
    if (o.may_not_fit) return paint(text, "33");
    if (d.ends_at_error) return paint(text + "; what would have followed is not known", "33");
    return paint(text, "32");
  }

  static std::string emptied_text(const PlanOutcome& o) {
    if (o.on_card->emptied == 0) return "";
    return fmt::format("; the cache is emptied {}, which costs time",
                       o.on_card->emptied == 1 ? "once" : grouped(o.on_card->emptied) + " times");
  }

  // Of a plan that fits.
  static std::string caveats(const PlanDevice& d, const PlanOutcome& o) {
    std::string text = emptied_text(o);
    if (o.may_not_fit) text += fmt::format("; {}, it does not fit", upper_end(d, o));
    return text;
  }

  static std::string upper_end(const PlanDevice& d, const PlanOutcome& o) {
    return fmt::format("at the upper end of the range, {}",
                       size_texts(o.high_reserved, d.capacity).first);
  }

  // "15.3 GiB reserved (12.0 GiB to 15.3 GiB) of 15.3 GiB": what fits reserves no more than the
  // card has.
  static std::string use_text(const PlanDevice& d, const PlanOutcome& o) {
    const uint64_t planned = o.on_card->reserved_peak;
    const uint64_t most = o.may_not_fit ? o.high_reserved : std::min(o.high_reserved, d.capacity);
    return fmt::format("{} reserved{} of {}", size_text(planned),
                       range_text(std::min(o.low_reserved, planned), std::max(planned, most)),
                       size_text(d.capacity));
  }

  void shares(const PlanOutcome& o) {
    line();
    line(dim(fmt::format("  {:<24}{:>12}{:>12}", "at the allocated peak", "recorded", "planned")));
    for (const CategoryBytes& c : o.categories) {
      if (std::max(c.planned, c.recorded) == 0) continue;
      line(styled("  {:<24}{:>12}{:>12}", category_name(c.category), size_text(c.recorded),
                  size_text(c.planned)));
    }
    if (o.failed_request != 0) {
      line(styled("  {:<24}{:>12}{:>12}", "request that failed", "", size_text(o.failed_request)));
    }
    line(dim("  of requests, rounded; the report counts blocks, which can be a little larger"));
  }

  void layers(const PlanOutcome& o) {
    constexpr size_t kMost = 24;
    if (o.layers.empty()) return;
    line();
    line(dim(fmt::format("  {:<28}{:>24}{:>24}", "", "weights and states", "everything else")));
    line(dim(fmt::format("  {:<28}{:>12}{:>12}{:>12}{:>12}", "layer", "recorded", "planned",
                         "recorded", "planned")));
    std::vector<ModulePart> parts;
    for (const LayerBytes& l : o.layers) {
      parts.push_back(
          {l.path,
           "",
           {l.recorded_weights, l.planned_weights, l.recorded_others, l.planned_others}});
    }
    const std::vector<ModuleRow> rows = module_tree(parts);
    std::vector<uint64_t> weights;
    uint64_t whole = 0;
    for (const ModuleRow& r : rows) {
      weights.push_back(std::accumulate(r.amounts.begin(), r.amounts.end(), uint64_t{0}));
      if (r.depth == 0) whole += weights.back();
    }
    const std::vector<size_t> shown = main_rows(rows, weights, whole, kMost);
    for (const size_t i : shown) {
      const ModuleAmounts& n = rows[i].amounts;
      line(styled("  {:<28}{:>12}{:>12}{:>12}{:>12}", layer_name(rows, i, 28), size_text(n[0]),
                  size_text(n[1]), size_text(n[2]), size_text(n[3])));
    }
    if (shown.size() < rows.size()) {
      line(dim(fmt::format("  and {}; --json has all of them",
                           counted(rows.size() - shown.size(), "smaller one"))));
    }
  }

  void largest_batch(const PlanDevice& d, const PlanFit& f) {
    if (f.batch.factor == 0) {
      line(paint(report_.samples != 0 ? "  Not even a batch of one sample fits this card."
                                      : "  No batch fits this card, however small.",
                 "1;31"));
      return;
    }
    if (!d.has_whole_step) {
      line(
          paint("  Which batch fits is not known: the recording ends with the error, and no whole "
                "step was found before it.",
                "33"));
      return;
    }
    if (d.may_divide_batch) {
      line(
          styled("  What one pass gets (micro-batch, chunk) may be {}x the recorded one: {}{}. "
                 "Which batch fits is not known.",
                 bold(factor_text(f.batch.factor)), use_text(d, f.outcome), caveats(d, f.outcome)));
      return;
    }
    const StyledText batch = bold(batch_text(f.batch));
    if (d.ends_at_error) {
      line(
          styled("  Largest batch that fits: at most {}: the recording ends with the error, in the "
                 "middle of a step",
                 batch));
      return;
    }
    line(styled("  Largest batch that fits: {}{}: {}{}", batch, f.batch.at_limit ? " or more" : "",
                use_text(d, f.outcome), caveats(d, f.outcome)));
  }

  std::string batch_text(const FittingBatch& batch) const {
    return (report_.samples != 0 ? counted(batch.samples, "sample") + ", " : "") +
           factor_text(batch.factor) + "x the recorded batch";
  }

  void shared_batch(const PlanDevice& d, const SharedBatch& shared) {
    if (!d.has_whole_step) return;
    const std::string most = shared.batch.factor == 0 ? "no batch"
                             : report_.samples != 0
                                 ? "at most " + counted(shared.batch.samples, "sample")
                                 : fmt::format("at most {}x", factor_text(shared.batch.factor));
    line(paint(fmt::format("  The devices of this process share the batch, and {} fits cuda:{}.",
                           most, shared.device),
               "33"));
  }

  void fit(const PlanDevice& d, const PlanFit& f) {
    line();
    if (!d.growth.empty()) {
      line(paint(
          fmt::format("  No batch and no setting can be said to fit: memory grows for as long "
                      "as the program runs ({}, see tidemark report). Mend that first.",
                      d.growth),
          "33"));
      return;
    }
    largest_batch(d, f);
    if (f.shared) shared_batch(d, *f.shared);
    if (f.cheapest) {
      line(styled("  Cheapest changes with which {} fits: {}{}{}",
                  d.ends_at_error ? "what was recorded" : "it", bold(cheapest_text(d, *f.cheapest)),
                  f.cheapest_outcome ? ": " + use_text(d, *f.cheapest_outcome) : "",
                  f.cheapest_outcome ? caveats(d, *f.cheapest_outcome) : ""));
    } else if (!d.outcome.fits()) {
      line(paint("  No set of changes that was tried makes it fit.", "1;31"));
    }
  }

  const PlanReport& report_;
};

}  // namespace

std::string plan_as_text(const PlanReport& report, bool colour) {
  return TextPlan(report, colour).run();
}

}  // namespace tidemark
