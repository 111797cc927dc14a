#include "export/whatif/whatif_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "analysis/wording.h"
#include "export/report/report_wording.h"
#include "export/styled_text.h"

namespace tidemark {

namespace {

std::string conf_name(std::string_view conf) {
  return conf.empty() ? "default settings" : std::string(conf);
}

class TextWhatIf : StyledLines {
 public:
  TextWhatIf(const WhatIfReport& report, bool colour) : StyledLines(colour), report_(report) {}

  std::string run() {
    line(bold(report_.path));
    for (const WhatIfDevice& d : report_.devices) device(d);
    return std::move(out_);
  }

 private:
  void device(const WhatIfDevice& d) {
    device_title(process_title(report_.devices, d), d.device, d.card_name);
    const bool replayed = d.baseline.reserved_peak != d.recorded_reserved_peak;
    const auto [recorded, again] = size_texts(d.recorded_reserved_peak, d.baseline.reserved_peak);
    line(styled("  peaks recorded with {}: {} reserved, {} allocated", conf_name(d.own_conf),
                bold(recorded), size_text(d.recorded_allocated_peak)));
    faith(d);
    if (replayed) {
      line(styled("  replayed like the rows below, but with the recorded settings: {} reserved",
                  bold(again)));
    }
    line();
    line(dim(fmt::format("  {:>10}  {:>19}  {:>12}  {:>12}  {:>12}  {}", "reserved", "less than",
                         "cached, free", "largest", "driver", "")));
    line(dim(fmt::format("  {:>10}  {:>19}  {:>12}  {:>12}  {:>12}  {}", "peak",
                         replayed ? "that" : "recorded", "at the peak", "hole", "calls", "with")));
    for (const Prediction& p : d.predictions) row(d, p);
    verdict(d);
    growth(d);
    for (const std::string& note : d.notes) line(paint("  ! ", "33") + note);
  }

  void faith(const WhatIfDevice& d) {
    const Replay& r = d.replay;
    if (r.exact()) {
      line(
          fmt::format("  the model of PyTorch {}'s allocator reproduces the recorded address of "
                      "each of {}",
                      r.version.text(), counted(r.blocks, "block")));
      return;
    }
    line(
        fmt::format("  the model of PyTorch {}'s allocator reserves {} for this recording; {} of "
                    "{} are at other addresses than recorded",
                    r.version.text(), size_text(r.prediction.reserved_peak),
                    grouped(r.misplaced_blocks), counted(r.blocks, "block")));
  }

  static std::string change(uint64_t from, uint64_t to) {
    if (from == to) return "the same";
    const uint64_t amount = from > to ? from - to : to - from;
    return fmt::format("{}{}  {:>7}", from > to ? "" : "+", size_text(amount),
                       (from > to ? "" : "+") + percent_text(amount, from));
  }

  void row(const WhatIfDevice& d, const Prediction& p) {
    StyledText end = conf_name(p.conf);
    if (p.out_of_memory) {
      const bool both = p.ended_early && d.replay.prediction.out_of_memory;
      // The range is only worth a word where it decides.
      const auto [lowest, enough] = size_texts(p.limit_bytes, p.fits_below);
      const std::string limit =
          p.fits_below == 0
              ? fmt::format("limit {}{}", p.most_limit_bytes > p.limit_bytes ? "at least " : "",
                            size_text(p.limit_bytes))
              : fmt::format("if the limit is {}; fits if it is at least {}", lowest, enough);
      end += paint(
          fmt::format("  {} at {}{}: requested {}, {}",
                      p.fits_below == 0 ? "OUT OF MEMORY" : "may run out of memory",
                      offset_text(p.failed_ns - report_.start_ns),
                      both ? ", earlier than recorded" : "", size_text(p.failed_bytes), limit),
          p.fits_below == 0 ? "1;31" : "33");
    }
    if (p.failures_avoided > d.baseline.failures_avoided) {
      end += paint(fmt::format("  fits {} that failed in the recording",
                               counted(p.failures_avoided, "request")),
                   "32");
    }
    if (!p.needs_torch.empty()) end += fmt::format("  (PyTorch {} or later)", p.needs_torch);
    if (p.emptied != 0) end += fmt::format("  (cache emptied {})", times(p.emptied));
    line(styled("  {:>10}  {:>19}  {:>12}  {:>12}  {:>12}  {}", size_text(p.reserved_peak),
                p.ended_early ? "ends early" : change(d.baseline.reserved_peak, p.reserved_peak),
                size_text(p.cached_free_at_peak), size_text(p.largest_hole_at_peak),
                grouped(p.driver_allocations + p.driver_frees), end));
  }

  static std::string times(uint64_t n) { return n == 1 ? "once" : grouped(n) + " times"; }

  // Whether the table shows 1.0 % or more.
  static bool is_worthwhile(uint64_t part, uint64_t whole) {
    return whole != 0 &&
           std::llround(1000 * static_cast<double>(part) / static_cast<double>(whole)) >= 10;
  }

  // A setting with which more of the run passes is better than one that reserves less. Null: the
  // program runs out of memory with all of them.
  static const Prediction* best_of(const WhatIfDevice& d, bool of_any_torch) {
    const Prediction* best = nullptr;
    for (const Prediction& p : d.predictions) {
      if (p.out_of_memory || (of_any_torch && !p.needs_torch.empty())) continue;
      if (best == nullptr || p.failures_avoided > best->failures_avoided ||
          (p.failures_avoided == best->failures_avoided && p.reserved_peak < best->reserved_peak)) {
        best = &p;
      }
    }
    return best;
  }

  void verdict(const WhatIfDevice& d) {
    line();
    const Prediction* best = best_of(d, true);
    const Prediction* of_newer = best_of(d, false);
    if (best == nullptr) best = of_newer;
    judge(d, best);
    if (best == nullptr || of_newer == best) return;
    const uint64_t recorded = d.baseline.reserved_peak;
    const auto saved_by = [&](const Prediction& p) {
      return recorded - std::min(recorded, p.reserved_peak);
    };
    if (is_worthwhile(saved_by(*of_newer) - std::min(saved_by(*of_newer), saved_by(*best)),
                      recorded)) {
      line(fmt::format("  Only with PyTorch {} or later: {} would save {}.", of_newer->needs_torch,
                       conf_name(of_newer->conf), size_text(saved_by(*of_newer))));
    }
  }

  void judge(const WhatIfDevice& d, const Prediction* best) {
    if (best == nullptr) {
      const auto may_fit = std::find_if(d.predictions.begin(), d.predictions.end(),
                                        [](const Prediction& p) { return p.fits_below != 0; });
      if (may_fit == d.predictions.end()) {
        line("  The program would run out of memory with each of these settings.");
        return;
      }
      const auto [lowest, highest] = size_texts(may_fit->limit_bytes, may_fit->most_limit_bytes);
      line(styled(
          "  {}: the limit set by the program is between {} and {}.{}",
          styled(d.ends_at_error ? "With {}, the request that failed may fit" : "{} may be enough",
                 bold(conf_name(may_fit->conf))),
          lowest, highest, what_follows(d)));
      return setting(d, *may_fit);
    }
    if (d.baseline.failures_avoided != 0 && best->failures_avoided <= d.baseline.failures_avoided) {
      line(
          "  With the recorded settings, too, no request fails in the replay: the history does not "
          "have what the memory looked like before it began. It cannot tell which setting avoids "
          "the error.");
      return;
    }
    if (best->failures_avoided != 0) {
      line(styled("  With {}, {} that failed would fit.{}", bold(conf_name(best->conf)),
                  counted(best->failures_avoided, "request"), what_follows(d)));
      return setting(d, *best);
    }
    const uint64_t recorded = d.baseline.reserved_peak;
    const uint64_t saved = recorded - std::min(recorded, best->reserved_peak);
    if (!is_worthwhile(saved, recorded)) {
      const std::string why =
          best->reserved_peak > recorded
              ? fmt::format("the best of them, {}, would reserve {} more", conf_name(best->conf),
                            size_text(best->reserved_peak - recorded))
              : where_it_is(*best);
      line(fmt::format("  None of these settings would save 1 % or more: {}.", why));
      return;
    }
    line(styled("  {} would save {} ({}).", bold(conf_name(best->conf)), bold(size_text(saved)),
                percent_text(saved, recorded)));
    setting(d, *best);
  }

  void growth(const WhatIfDevice& d) {
    if (d.growth.empty()) return;
    line(fmt::format(
        "  Memory grows in this recording ({}, see tidemark report): a longer run needs "
        "more, and no setting helps against that.",
        d.growth));
  }

  static std::string_view what_follows(const WhatIfDevice& d) {
    if (!d.growth.empty()) return " Later ones would not.";
    return d.ends_at_error ? " The recording ends there: whether the rest fits is not known." : "";
  }

  // What holds the reserved memory that no setting saves.
  static std::string where_it_is(const Prediction& best) {
    const uint64_t free = best.cached_free_at_peak;
    const uint64_t pending =
        best.reserved_peak - std::min(best.reserved_peak, best.allocated_at_peak + free);
    if (pending > free && is_worthwhile(pending, best.reserved_peak)) {
      return fmt::format(
          "{} waits for other streams: the program freed it, but it cannot be reused before they "
          "are done with it (record_stream)",
          size_text(pending));
    }
    if (is_worthwhile(free, best.reserved_peak)) {
      return fmt::format("even with {}, {} would stay cached and free", conf_name(best.conf),
                         size_text(free));
    }
    return "the memory is in use, not lost in holes";
  }

  // Where the failed request alone does not explain what it reserves more, it only shifts the
  // limit.
  static bool is_gain(const WhatIfDevice& d, const Prediction& best) {
    return best.reserved_peak <= d.baseline.reserved_peak + d.replay.prediction.failed_bytes;
  }

  void setting(const WhatIfDevice& d, const Prediction& best) {
    if (!d.growth.empty()) return;
    if (!is_gain(d, best)) {
      line(fmt::format("  It reserves {} more than the recording did, so it is no advice.",
                       size_text(best.reserved_peak - d.baseline.reserved_peak)));
    } else if (best.conf.empty()) {
      line("  Unset PYTORCH_CUDA_ALLOC_CONF before the program starts.");
    } else {
      line(fmt::format("  Set before the program starts: PYTORCH_CUDA_ALLOC_CONF={}", best.conf));
    }
  }

  const WhatIfReport& report_;
};

}  // namespace

std::string whatif_as_text(const WhatIfReport& report, bool colour) {
  return TextWhatIf(report, colour).run();
}

}  // namespace tidemark
