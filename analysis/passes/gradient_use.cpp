#include "analysis/passes/gradient_use.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

namespace tidemark {

namespace {

constexpr size_t kLeastClearings = 3;                     // in as many steps
constexpr uint64_t kSmallParameter = uint64_t{64} << 10;  // a bias, or the scale of a norm
constexpr size_t kLeastSizes = 3;
constexpr size_t kLeastGradients = 3;  // fewer may be workspaces of a library

class Search {
 public:
  Search(const AllocationHistory& model, const StackRoles& roles, const Steps& steps,
         const Categories& categories, std::span<const BackwardPass> passes)
      : model_(model), all_(model.allocations), roles_(roles), steps_(steps), passes_(passes) {
    for (size_t i = 0; i < all_.size(); ++i) {
      if (categories.of[i] == Category::kParameter) ++sizes_[all_.asked_bytes(i)];
    }
  }

  GradientUse run() {
    GradientUse found;
    const std::vector<uint32_t> clearings = find_clearings();
    if (clearings.size() < kLeastClearings) return found;
    find_surviving(clearings, found);
    leave_out_stepped(found);
    leave_out_of_activations(found);
    if (found.unused.size() < kLeastGradients) found = {};
    if (found.unused.empty() && model_.seeded_blocks != 0) find_added(found);
    return found;
  }

 private:
  bool stays(size_t i) const {
    return all_.release(i) == kNever || all_.release(i) > all_.birth(all_.size() - 1);
  }

  // Calls visit(row, kept) for blocks of the backward pass in the sizes of parameters. `kept`: it
  // outlives the pass.
  template <typename Visit>
  void visit_gradients(const BackwardPass& pass, Visit&& visit) const {
    const BirthRange rows = births_within(model_, pass.first, pass.last + 1);
    for (size_t i = rows.begin; i < rows.end; ++i) {
      if (roles_.of(all_.stack(i)) != StackRole::kBackward) continue;
      if (sizes_.contains(all_.asked_bytes(i))) visit(i, outlives(pass, rows, i));
    }
  }

  // After the last allocation of the pass, the pass itself frees what it has added to another
  // gradient, and the program several at a time.
  bool outlives(const BackwardPass& pass, const BirthRange& rows, size_t row) const {
    const uint32_t release = all_.release(row);
    if (release <= pass.last) return false;
    if (all_.birth(row) != pass.last || release >= pass.end) return true;
    for (size_t i = rows.begin; i < rows.end; ++i) {
      const bool freed = i != row && all_.release(i) > pass.last && all_.release(i) < pass.end;
      if (freed && roles_.of(all_.stack(i)) == StackRole::kBackward &&
          sizes_.contains(all_.asked_bytes(i))) {
        return true;
      }
    }
    return false;
  }

  // The ends of steps in which gradients were freed. The last ones that a pass computes may have
  // been added to others that stay, and freed by the pass itself; one that waits while others are
  // computed is no such addend.
  std::vector<uint32_t> find_clearings() const {
    std::set<uint32_t> ends;
    for (const BackwardPass& pass : passes_) {
      struct Freed {
        uint32_t release = 0;
        size_t number = 0;  // among the gradients of the pass
      };
      std::vector<Freed> freed;
      size_t gradients = 0;
      visit_gradients(pass, [&](size_t i, bool kept) {
        if (kept && !stays(i)) freed.push_back({all_.release(i), gradients});
        ++gradients;
      });
      const bool by_program = std::any_of(freed.begin(), freed.end(), [&](const Freed& f) {
        return f.release >= pass.end || f.number + kLeastGradients < gradients;
      });
      if (!by_program && freed.size() < kLeastGradients) continue;
      for (const Freed& f : freed) ends.insert(steps_.end_of_step(f.release));
    }
    ends.erase(kNever);
    return {ends.begin(), ends.end()};
  }

  // Sizes of gradients to which later passes add what they free at once. A model that is no longer
  // trained keeps gradients as well, but no pass computes them again.
  std::set<uint64_t> sizes_added_to(const BackwardPass& pass) const {
    constexpr size_t kPassesToSee = 8;
    const auto freed_in = [&](const BackwardPass& of, bool& keeps) {
      std::unordered_map<uint64_t, size_t> freed;
      visit_gradients(of, [&](size_t i, bool kept) {
        keeps = keeps || kept;
        // Or by the program: that of the pass before, too, if the gradient is trained.
        const bool freed_last = all_.birth(i) == of.last && all_.release(i) < of.end;
        if (!kept || freed_last) ++freed[all_.asked_bytes(i)];
      });
      return freed;
    };
    bool keeps = false;
    std::unordered_map<uint64_t, size_t> own = freed_in(pass, keeps);
    std::set<uint64_t> sizes;
    size_t seen = 0;
    for (const BackwardPass& later : passes_) {
      if (later.first <= pass.first) continue;
      bool fresh = false;  // not one of several micro-batches, which adds to all gradients
      for (const auto& [bytes, count] : freed_in(later, fresh)) {
        if (fresh && count > own[bytes]) sizes.insert(bytes);
      }
      if (fresh && ++seen == kPassesToSee) break;
    }
    return sizes;
  }

  void find_surviving(const std::vector<uint32_t>& clearings, GradientUse& found) const {
    for (const BackwardPass& pass : passes_) {
      const size_t before = found.unused.size();
      std::map<uint32_t, bool> births;
      std::optional<std::set<uint64_t>> added_to;  // only where needed: it visits other passes
      visit_gradients(pass, [&](size_t i, bool kept) {
        if (!kept) return;
        const auto later = std::upper_bound(clearings.begin(), clearings.end(), all_.birth(i));
        bool unused = static_cast<size_t>(clearings.end() - later) >= kLeastClearings && stays(i) &&
                      all_.category(i) != Category::kGradient;
        if (unused && !added_to) added_to = sizes_added_to(pass);
        unused = unused && added_to->contains(all_.asked_bytes(i));
        births[all_.birth(i)] = unused;
        if (unused) found.unused.push_back(i);
      });
      if (before != 0 || found.unused.empty()) continue;
      found.pass = pass;
      found.births = std::move(births);
    }
  }

  // How many parameters of each size the optimizers step: those they made states for. They make the
  // states of one parameter after another, as many for each.
  std::unordered_map<uint64_t, size_t> stepped() const {
    std::unordered_map<uint64_t, size_t> states;
    uint64_t size = 0;
    size_t run = 0;  // states of one size in a row
    size_t for_each = 0;
    for (size_t i = 0; i < all_.size(); ++i) {
      const StackRole role = roles_.of(all_.stack(i));
      if (!in_optimizer(role)) continue;
      const uint64_t bytes = all_.asked_bytes(i);
      if (bytes <= sizeof(double) || !sizes_.contains(bytes) || !outlives_step(i)) continue;
      if (bytes != size) for_each = std::gcd(for_each, std::exchange(run, 0));
      size = bytes;
      ++run;
      ++states[bytes];
    }
    for_each = std::gcd(for_each, run);
    for (auto& [bytes, count] : states) count /= for_each;
    return states;
  }

  // Where no optimizer makes states: how many temporaries of each size it makes in one step, as SGD
  // does for each parameter with a weight decay.
  std::unordered_map<uint64_t, size_t> worked_on() const {
    std::map<std::pair<uint32_t, uint64_t>, size_t> counts;  // by the step's end, and size
    std::unordered_map<uint64_t, size_t> most;
    for (size_t i = 0; i < all_.size(); ++i) {
      const uint64_t bytes = all_.asked_bytes(i);
      if (!in_optimizer(roles_.of(all_.stack(i))) || !sizes_.contains(bytes)) continue;
      size_t& count = counts[{steps_.end_of_step(all_.birth(i)), bytes}];
      most[bytes] = std::max(most[bytes], ++count);
    }
    return most;
  }

  bool outlives_step(size_t i) const {
    const uint32_t end = steps_.end_of_step(all_.birth(i));
    return end != kNever && all_.release(i) > end;
  }

  // A gradient survives all steps also where the program sets it to zero instead of freeing it, as
  // it may do with all of them or with some. It is unused only if, besides the parameters that are
  // stepped, there is another one of its size.
  void leave_out_stepped(GradientUse& found) const {
    if (found.unused.empty()) return;
    std::unordered_map<uint64_t, size_t> unused;
    for (const size_t i : found.unused) ++unused[all_.asked_bytes(i)];
    std::unordered_map<uint64_t, size_t> gradients = unused;
    visit_gradients(found.pass, [&](size_t i, bool kept) {
      if (kept && !found.births.at(all_.birth(i))) ++gradients[all_.asked_bytes(i)];
    });
    std::unordered_map<uint64_t, size_t> known = stepped();
    found.certain = !known.empty();
    if (known.empty()) known = worked_on();
    for (const auto& [bytes, count] : known) {
      const auto it = unused.find(bytes);
      if (it == unused.end()) continue;
      if (it->second + count > std::min(sizes_.at(bytes), gradients[bytes])) unused.erase(it);
    }
    std::erase_if(found.unused, [&](size_t i) { return !unused.contains(all_.asked_bytes(i)); });
    visit_gradients(found.pass, [&](size_t i, bool kept) {
      if (kept && !unused.contains(all_.asked_bytes(i))) found.births[all_.birth(i)] = false;
    });
  }

  // The pass ends by freeing the gradient of an activation, which may have the size of parameters.
  // These have one gradient each.
  void leave_out_of_activations(GradientUse& found) const {
    std::unordered_map<uint64_t, size_t> gradients;
    const BirthRange rows = births_within(model_, found.pass.first, found.pass.last + 1);
    for (size_t i = rows.begin; i < rows.end; ++i) {
      if (found.births.contains(all_.birth(i))) ++gradients[all_.asked_bytes(i)];
    }
    for (size_t i = rows.end; i-- > rows.begin;) {
      const uint64_t bytes = all_.asked_bytes(i);
      const auto gradient = found.births.find(all_.birth(i));
      if (gradient == found.births.end() || gradient->second) continue;
      if (all_.release(i) >= found.pass.end || gradients[bytes] <= sizes_.at(bytes)) continue;
      found.births.erase(gradient);
      --gradients[bytes];
    }
  }

  // What the backward passes do with gradients of one size.
  struct OfSize {
    std::vector<size_t> older;  // blocks of that size that are older than the history and stay
    size_t kept = 0;            // in the pass that keeps most
    size_t freed = 0;           // in the same
    size_t freed_at_once = 0;   // of these, see is_freed_at_once
    size_t most_kept = 0;       // in any pass
    bool of_activations = false;
    // Some are freed before as many are kept. Otherwise they may be those of a model that one step
    // uses twice, which are added to the first ones and freed as well.
    bool freed_first = false;

    // Blocks of a parameter that is trained: itself, and with a model that is used twice, its two
    // states, or one and a moving average.
    size_t older_of_trained() const { return freed_first ? 1 : 3; }

    // What is added to older gradients. Besides each of these, there is its parameter.
    bool can_be_added() const { return fits(freed) && !of_activations; }
    bool fits(size_t added) const {
      return added != 0 && older.size() >= 2 * added + older_of_trained() * kept;
    }
    // Of which no gradient is ever kept. Graphs that are retained from before the history are as
    // many older blocks, in the sizes of activations: there, only what is freed at once is added.
    // A parameter that is trained has states as well, even if its gradient is set to zero.
    bool is_unused() const {
      const size_t added = of_activations && 2 * freed != older.size() ? freed_at_once : freed;
      return fits(added) && most_kept == 0 && older.size() < 3 * added;
    }
    // If other sizes are unused: in one of activations, a sum of gradients also frees what it adds,
    // and the last gradient of an activation may be freed after the pass.
    size_t unused_of_activations() const {
      return of_activations && most_kept <= 1 ? std::min(freed_at_once, older.size() / 2) : 0;
    }
    // As many as are kept, and their parameters, among others in the sizes of activations: the
    // parameters of another precision that autocast makes are such.
    bool can_hold_copy() const {
      return freed >= kept && older.size() >= (2 + older_of_trained()) * kept;
    }
  };
  using Sizes = std::map<uint64_t, OfSize>;

  // Those that parameters have as well.
  std::set<uint64_t> activation_sizes() const {
    std::set<uint64_t> sizes;
    for (size_t i = 0; i < all_.size(); ++i) {
      if (all_.seeded(i) || roles_.of(all_.stack(i)) != StackRole::kForward) continue;
      if (sizes_.contains(all_.asked_bytes(i))) sizes.insert(all_.asked_bytes(i));
    }
    return sizes;
  }

  // The pass that keeps most: of micro-batches, the first one. The history may have begun in the
  // middle of the first.
  const BackwardPass* most_kept(const std::set<uint64_t>& activations) const {
    const BackwardPass* most = nullptr;
    uint64_t most_bytes = 0;
    for (const BackwardPass& pass : passes_.subspan(1)) {
      uint64_t bytes = 0;
      size_t count = 0;
      bool stays = false;
      visit_gradients(pass, [&](size_t i, bool kept) {
        if (!kept) return;
        bytes += all_.block_bytes(i);
        ++count;
        const bool freed_last =
            all_.birth(i) == pass.last || activations.contains(all_.asked_bytes(i));
        stays = stays || all_.release(i) >= pass.end || !freed_last;
      });
      // At its end, the pass itself frees the gradient of an activation, and what it adds last.
      if (bytes <= most_bytes || (!stays && count < kLeastGradients)) continue;
      most = &pass;
      most_bytes = bytes;
    }
    return most;
  }

  // Before anything else is allocated. The gradient of an activation is there until the next
  // operation has computed another one from it.
  bool is_freed_at_once(size_t i) const {
    return i + 1 == all_.size() || all_.release(i) < all_.birth(i + 1);
  }

  Sizes sizes_in(const BackwardPass& pass, const std::set<uint64_t>& activations) const {
    Sizes sizes;
    for (size_t i = 0; i < all_.size() && all_.seeded(i); ++i) {
      if (stays(i)) sizes[all_.asked_bytes(i)].older.push_back(i);
    }
    for (auto& [bytes, s] : sizes) s.of_activations = activations.contains(bytes);
    visit_gradients(pass, [&](size_t i, bool kept) {
      OfSize& s = sizes[all_.asked_bytes(i)];
      ++(kept ? s.kept : s.freed);
      s.freed_first = s.freed_first || s.freed > s.kept;
      if (!kept && is_freed_at_once(i)) ++s.freed_at_once;
    });
    for (const BackwardPass& any : passes_) {
      std::map<uint64_t, size_t> kept_of_size;
      visit_gradients(any, [&](size_t i, bool kept) {
        if (!kept) return;
        size_t& most = sizes[all_.asked_bytes(i)].most_kept;
        most = std::max(most, ++kept_of_size[all_.asked_bytes(i)]);
      });
    }
    return sizes;
  }

  void find_added(GradientUse& found) const {
    const std::set<uint64_t> activations = activation_sizes();
    const BackwardPass* const pass = most_kept(activations);
    if (pass == nullptr) return;
    const Sizes sizes = sizes_in(*pass, activations);
    const bool part = is_part_unused(sizes);
    if (!part && !is_copy_unused(sizes)) return;
    std::map<uint32_t, bool> births;
    visit_gradients(*pass, [&](size_t i, bool kept) {
      const OfSize& s = sizes.at(all_.asked_bytes(i));
      const bool added =
          s.can_be_added() || (part && s.unused_of_activations() != 0 && is_freed_at_once(i));
      if (kept || added) births[all_.birth(i)] = !kept;
    });
    // Two backward passes over one graph also add to every gradient, but the first frees nothing.
    if (!part && !frees_for_both(*pass, births)) return;
    for (const auto& [bytes, s] : sizes) {
      const size_t count = s.can_be_added()    ? s.freed
                           : part              ? s.unused_of_activations()
                           : s.can_hold_copy() ? s.kept
                                               : 0;
      found.unused.insert(found.unused.end(), s.older.begin(),
                          s.older.begin() + static_cast<std::ptrdiff_t>(count));
    }
    found.pass = *pass;
    found.births = std::move(births);
  }

  // Several sizes, a layer's weights and its biases or norms, of which no gradient is ever kept.
  // Gradients of activations may have the size of some parameter, but hardly of all of them.
  static bool is_part_unused(const Sizes& sizes) {
    size_t large = 0;
    size_t small = 0;
    for (const auto& [bytes, s] : sizes) {
      if (!s.is_unused()) continue;
      ++(bytes < kSmallParameter ? small : large);
    }
    return small != 0 && large != 0 && small + large >= kLeastSizes;
  }

  // For every gradient that is kept there is one of the same size that is not: a second model.
  static bool is_copy_unused(const Sizes& sizes) {
    uint64_t kept = 0;
    uint64_t doubled = 0;
    uint64_t surely = 0;
    size_t count = 0;
    for (const auto& [bytes, s] : sizes) {
      if (s.kept == 0) continue;
      kept += bytes * s.kept;
      if (!s.can_hold_copy()) continue;
      doubled += bytes * s.kept;
      if (!s.can_be_added()) continue;
      surely += bytes * s.kept;
      ++count;
    }
    return count >= kLeastSizes && doubled >= kept / 10 * 9 && surely >= kept / 2;
  }

  bool frees_for_both(const BackwardPass& pass, const std::map<uint32_t, bool>& births) const {
    uint64_t bytes[2] = {};
    const BirthRange rows = births_within(model_, pass.forward_first, pass.first);
    for (size_t i = rows.begin; i < rows.end; ++i) {
      const Allocation a = all_[i];
      if (!pass.consumes(a)) continue;
      auto next = births.upper_bound(a.release);
      if (next != births.begin()) --next;
      bytes[next->second ? 1 : 0] += a.block_bytes;
    }
    return std::min(bytes[0], bytes[1]) >= std::max(bytes[0], bytes[1]) / 10;
  }

  const AllocationHistory& model_;
  const AllocationColumns& all_;
  const StackRoles& roles_;
  const Steps& steps_;
  std::span<const BackwardPass> passes_;
  std::unordered_map<uint64_t, size_t> sizes_;  // of parameters, and how many have each
};

}  // namespace

GradientUse find_gradient_use(const AllocationHistory& model, const StackRoles& roles,
                              const Steps& steps, const Categories& categories,
                              std::span<const BackwardPass> passes) {
  return Search(model, roles, steps, categories, passes).run();
}

void sort_unused_gradients(const AllocationHistory& model, const GradientUse& use,
                           Categories& categories) {
  struct OfSize {
    size_t unused = 0;
    std::vector<size_t> unknown;
    std::vector<size_t> parameters;
  };
  std::unordered_map<uint64_t, OfSize> sizes;
  for (const size_t i : use.unused) {
    if (model.allocations.seeded(i)) ++sizes[model.allocations.asked_bytes(i)].unused;
  }
  for (size_t i = 0; !sizes.empty() && i < model.allocations.size(); ++i) {
    if (!model.allocations.seeded(i)) break;
    const auto it = sizes.find(model.allocations.asked_bytes(i));
    if (it == sizes.end()) continue;
    const bool known = categories.of[i] == Category::kGradient && it->second.unused != 0;
    if (known) --it->second.unused;
    if (categories.of[i] == Category::kUnknown) it->second.unknown.push_back(i);
    if (categories.of[i] == Category::kParameter) it->second.parameters.push_back(i);
  }
  const auto set = [&](size_t i, Category category) {
    categories.of[i] = category;
    categories.confidence[i] = 5;
  };
  for (auto& [size, rows] : sizes) {
    std::vector<size_t>& unknown = rows.unknown;
    const size_t gradients = rows.unused - std::min(rows.unused, unknown.size());
    for (size_t k = 0; k < std::min(gradients, rows.parameters.size()); ++k) {
      set(rows.parameters[k], Category::kGradient);
    }
    for (size_t k = 0; k < std::min(2 * rows.unused, unknown.size()); ++k) {
      set(unknown[k], k < rows.unused ? Category::kGradient : Category::kParameter);
    }
  }
}

}  // namespace tidemark
