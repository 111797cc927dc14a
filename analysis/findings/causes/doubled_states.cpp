#include "analysis/findings/causes/doubled_states.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "analysis/history/rehearsal.h"

namespace tidemark {

namespace {

using Counts = std::unordered_map<uint64_t, size_t>;  // by size
using Rows = std::vector<size_t>;

class Search {
 public:
  Search(const DeviceEvidence& d, uint32_t event)
      : d_(d), all_(d.model->allocations), event_(event) {
    for (size_t i = 0; i < all_.size() && all_.birth(i) <= event; ++i) {
      if (d.categories.of[i] != Category::kParameter || all_.release(i) <= event) continue;
      ++parameters_[all_.asked_bytes(i)];
      parameter_bytes_ += all_.block_bytes(i);
    }
  }

  std::optional<DoubledStates> run() const {
    const std::vector<Rows> rounds = find_rounds();
    if (rounds.size() < 2) return std::nullopt;
    DoubledStates found;
    found.stack = all_.stack(rounds.back().front());
    Rehearsal without(*d_.model);
    Counts left = parameters_;   // without states of a newer round
    uint64_t doubled_bytes = 0;  // of parameters
    for (auto round = rounds.rbegin(); round != rounds.rend(); ++round) {
      const size_t states = states_of_each(*round);
      for (size_t i = 0; i + states <= round->size(); i += states) {
        const uint64_t bytes = all_.asked_bytes((*round)[i]);
        if (left[bytes] != 0) {
          --left[bytes];
          continue;
        }
        doubled_bytes += bytes;
        for (size_t k = i; k < i + states; ++k) {
          found.bytes += all_.block_bytes((*round)[k]);
          without.leave_out(all_[(*round)[k]]);
        }
      }
    }
    found.saved_bytes = without.saved_bytes();
    if (2 * doubled_bytes < parameter_bytes_ || found.saved_bytes < d_.peak_bytes() / 20) {
      return std::nullopt;
    }
    return found;
  }

 private:
  // Where only the sizes of blocks are known, a counter of steps looks like the state of a small
  // parameter: then there are none.
  bool is_state(size_t i) const {
    return all_.requested_bytes(i) != 0 && !all_.seeded(i) && all_.release(i) > event_ &&
           is_no_temporary(i) && all_.asked_bytes(i) > sizeof(double) &&
           parameters_.contains(all_.asked_bytes(i)) && is_of_torch(all_.stack(i));
  }

  // SGD makes its momenta among its temporaries.
  bool is_no_temporary(size_t i) const {
    const StackRole role = d_.roles->of(all_.stack(i));
    if (role == StackRole::kOptimizerInit) return true;
    return role == StackRole::kOptimizer && all_.release(i) > d_.steps.end_of_step(all_.birth(i));
  }

  // Others may make states for their parameters that are copies of them, one by one.
  bool is_of_torch(uint32_t stack) const {
    const Dictionary& names = d_.process->names;
    const Frame& frame = names.frame(names.stack(stack).frame);
    return names.string(frame.file).find("torch/optim/") != std::string_view::npos;
  }

  // States that were made with nothing else in between.
  std::vector<Rows> find_rounds() const {
    std::vector<Rows> rounds;
    bool open = false;
    for (size_t i = 0; i < all_.size() && all_.birth(i) <= event_; ++i) {
      const bool state = is_state(i);
      if (state && !open) rounds.emplace_back();
      if (state) rounds.back().push_back(i);
      // Counters of steps are made among the states.
      open = state || (open && d_.roles->of(all_.stack(i)) == StackRole::kOptimizerInit);
    }
    return rounds;
  }

  // Of one parameter.
  size_t states_of_each(const Rows& round) const {
    size_t each = 0;
    size_t run = 0;  // of one size in a row
    for (size_t i = 0; i < round.size(); ++i) {
      if (i != 0 && all_.asked_bytes(round[i]) != all_.asked_bytes(round[i - 1])) {
        each = std::gcd(each, std::exchange(run, 0));
      }
      ++run;
    }
    return std::gcd(each, run);
  }

  const DeviceEvidence& d_;
  const AllocationColumns& all_;
  const uint32_t event_;
  Counts parameters_;
  uint64_t parameter_bytes_ = 0;
};

}  // namespace

std::optional<DoubledStates> states_of_two_optimizers(const DeviceEvidence& d) {
  // In a history that began late, not every parameter may be known as one.
  if (d.model == nullptr || d.model->seeded_blocks != 0) return std::nullopt;
  return Search(d, d.ran_out() ? d.model->failures.back().event : d.model->allocated_peak.event)
      .run();
}

}  // namespace tidemark
