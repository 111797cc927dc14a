#include "analysis/plan/planned_sizes.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>

#include "analysis/plan/half_results.h"

namespace tidemark {

namespace {

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

uint64_t divided(uint64_t bytes, uint64_t by) {
  return (bytes + by - 1) / by;
}

// Of the parameters themselves: what their precision and number decide.
bool is_of_weights(Category category) {
  return category == Category::kParameter || category == Category::kGradient ||
         category == Category::kOptimizerState;
}

class PlannedSizes {
 public:
  PlannedSizes(const RecordedProgram& program, const PlanChange& change)
      : p_(program),
        change_(change),
        in_float64_(change.precision != PlanPrecision::kRecorded &&
                    computes_in_float64(program.process().names)),
        widths_(recorded_widths(program)) {
    for (size_t i = 0; i < p_.rows(); ++i) {
      embeds_ = embeds_ || contains(p_.operation(i), "mbedding");
    }
    for (const OperationRun& run : p_.runs()) find_integers(run);
    count_states();
    find_casts();
    if (change.precision != PlanPrecision::kRecorded) {
      find_optimized();
      find_linear_algebra();
    }
  }

  std::vector<uint64_t> run(const SizeLaws& laws, Estimate estimate) {
    if (adds_autocast(p_, change_)) {
      half_ = half_results(p_, laws);
      find_full_gradients();
    }
    std::vector<uint64_t> sizes(p_.rows());
    for (size_t i = 0; i < sizes.size(); ++i) {
      uint64_t bytes = estimated(laws[i], estimate, p_.bytes(i));
      bytes = with_optimizer(i, in_precision(i, bytes, laws[i], estimate));
      sizes[i] = sharded(i, bytes);
    }
    return sizes;
  }

 private:
  uint64_t estimated(const SizeLaw& law, Estimate estimate, uint64_t recorded) const {
    const uint64_t likely = law.bytes(change_.batch, change_.seq);
    if (law.sure || estimate == Estimate::kLikely) return likely;
    const SizeLaw otherwise = law.scaled == 0
                                  ? SizeLaw{0, recorded, 1, 1}
                                  : SizeLaw{0, recorded, law.other_batch, law.other_seq};
    const uint64_t other = otherwise.bytes(change_.batch, change_.seq);
    return estimate == Estimate::kLow ? std::min(likely, other) : std::max(likely, other);
  }

  // Masks have one byte, positions of maxima eight, for each number of four.
  void find_integers(const OperationRun& run) {
    if (integer_.empty()) integer_.resize(p_.rows(), false);
    const std::string_view operation = p_.operation(run.first);
    const bool drops = contains(operation, "dropout");
    const bool pools = contains(operation, "max_pool");
    if (!drops && !pools) return;
    for (uint32_t i = run.first; i < run.end; ++i) {
      for (uint32_t k = run.first; k < run.end; ++k) {
        if ((drops && p_.bytes(k) == 4 * p_.bytes(i)) ||
            (pools && p_.bytes(i) == 2 * p_.bytes(k))) {
          integer_[i] = true;
        }
      }
    }
  }

  // What the program itself keeps and the model does not know, such as a whole data set: how its
  // numbers are stored has nothing to do with the model.
  bool is_data(size_t row) const {
    const StackRole role = p_.role(row);
    return p_.category(row) == Category::kUnknown &&
           (role == StackRole::kUser || role == StackRole::kData) && is_kept(row) &&
           !p_.is_parameter_size(p_.bytes(row));
  }
  // Of the sizes of weights or read from a file: copies of weights, which shrink with them, or data
  // as well.
  bool may_be_data(size_t row) const {
    const StackRole role = p_.role(row);
    return p_.category(row) == Category::kUnknown && is_kept(row) &&
           (role == StackRole::kLoading ||
            (role == StackRole::kUser && p_.is_parameter_size(p_.bytes(row))));
  }
  // Computed by the program's own lines, and of no graph, such as overlaps of boxes: from results
  // of the model, or from data.
  bool is_own(size_t row) const {
    const Category category = p_.category(row);
    return p_.role(row) == StackRole::kUser &&
           (category == Category::kUnknown || category == Category::kTemporary);
  }
  bool is_kept(size_t row) const {
    return p_.outlives_steps(row) || p_.model().allocations.release(row) == kNever;
  }

  // Factorizations, solvers and eigenvalues have no implementation in 16 bits: they and what the
  // program makes of their results outside of the model have 32 or more.
  bool is_of_linear_algebra(size_t row) const {
    return algebra_sizes_.contains(p_.bytes(row)) &&
           (p_.role(row) == StackRole::kUser || is_linear_algebra(p_.operation(row)));
  }
  static bool is_linear_algebra(std::string_view node) {
    constexpr std::array<std::string_view, 6> kNodes = {"Linalg",  "Cholesky", "TriangularSolve",
                                                        "LuSolve", "LuUnpack", "OrgqrBackward"};
    return contains(node, "Backward") &&
           std::any_of(kNodes.begin(), kNodes.end(),
                       [&](std::string_view part) { return contains(node, part); }) &&
           !contains(node, "LinalgVectorNorm");
  }
  void find_linear_algebra() {
    for (const OperationRun& run : p_.runs()) {
      if (p_.role(run.first) == StackRole::kForward || !is_linear_algebra(p_.operation(run.first)))
        continue;
      for (uint32_t i = run.first; i < run.end; ++i) {
        if (p_.bytes(i) > kSmallBytes) algebra_sizes_.insert(p_.bytes(i));
      }
    }
  }

  bool is_float(size_t row) const {
    constexpr uint64_t kLabelBytes = 8192;
    if (is_data(row)) return false;
    if (!integer_.empty() && integer_[row]) return false;
    if (p_.category(row) == Category::kInput) return !embeds_ && p_.bytes(row) > kLabelBytes;
    return p_.category(row) != Category::kWorkspace && p_.bytes(row) > 8;
  }

  uint64_t in_precision(size_t row, uint64_t bytes, const SizeLaw& law, Estimate estimate) const {
    if (change_.precision == PlanPrecision::kRecorded || law.most != 0 || !is_float(row))
      return bytes;
    if (is_of_linear_algebra(row)) {
      const bool narrows = in_float64_ && change_.precision != PlanPrecision::kAutocast;
      return narrows ? divided(bytes, 2) : bytes;
    }
    const bool weights = is_of_weights(p_.category(row)) || in_optimizer(p_.role(row));
    if (in_float64_) {  // autocast leaves 64-bit numbers as they are
      return change_.precision == PlanPrecision::kHalf   ? divided(bytes, 4)
             : change_.precision == PlanPrecision::kFull ? divided(bytes, 2)
                                                         : bytes;
    }
    if (change_.precision == PlanPrecision::kAutocast) {
      if (widths_.computes_in_16()) return bytes;
      return !weights && computes_in_half(row, estimate) ? divided(bytes, 2) : bytes;
    }
    if (p_.autocasts()) {
      if (!weights && !in_full_precision(row)) {
        return cast_[row] || (law.scaled == 0 && is_cast_of_weight(row)) ? 0 : bytes;
      }
      const bool open = may_be_data(row) || may_be_16_beside_autocast(row);
      return open && estimate == Estimate::kHigh ? bytes : divided(bytes, 2);
    }
    const NumberWidth width = width_of(row);
    const bool open = width == NumberWidth::kBoth || width == NumberWidth::kUnknown ||
                      may_be_data(row) || is_own(row) || algebra_sizes_.contains(p_.bytes(row));
    return width == NumberWidth::k16 || (open && estimate == Estimate::kHigh) ? bytes
                                                                              : divided(bytes, 2);
  }

  // kBoth: it may have either. kUnknown: without kernels, 32 bits are the likely width.
  NumberWidth width_of(size_t row) const {
    if (widths_.all_in_16()) return NumberWidth::k16;
    if (widths_.products != NumberWidth::k16 && widths_.products != NumberWidth::kBoth) {
      return widths_.products;
    }
    const Category category = p_.category(row);
    // A model in 16 bits may have weights for its optimizer in 32 bits.
    const bool known = widths_.optimized == NumberWidth::k16
                           ? is_optimized(row) || category == Category::kActivation ||
                                 p_.role(row) == StackRole::kBackward
                           : category == Category::kOptimizerState || in_optimizer(p_.role(row));
    return known && widths_.optimized != NumberWidth::kUnknown ? widths_.optimized
                                                               : NumberWidth::kBoth;
  }

  bool is_optimized(size_t row) const {
    const Category category = p_.category(row);
    if (category == Category::kParameter) return optimized_sizes_.contains(p_.bytes(row));
    return is_of_weights(category) || in_optimizer(p_.role(row));
  }

  // A second model, which is not trained and of whose weights there are no 16-bit copies.
  bool may_be_16_beside_autocast(size_t row) const {
    return p_.category(row) == Category::kParameter && !optimized_sizes_.empty() &&
           !optimized_sizes_.contains(p_.bytes(row)) && !copied_sizes_.contains(p_.bytes(row));
  }

  // Sizes of which there are no more parameters than gradients of the first backward pass, and
  // those with copies of half the size in forward passes.
  void find_optimized() {
    if (p_.passes().empty()) return;
    std::map<uint64_t, int64_t> left;
    for (const uint32_t row : p_.gradients()) ++left[p_.bytes(row)];
    for (size_t i = 0; i < p_.rows(); ++i) {
      if (p_.category(i) == Category::kParameter) --left[p_.bytes(i)];
      if (p_.role(i) == StackRole::kForward) copied_sizes_.insert(2 * p_.bytes(i));
    }
    for (const auto& [bytes, count] : left) {
      if (count >= 0) optimized_sizes_.insert(bytes);
    }
  }

  bool is_cast_of_weight(size_t row) const {
    return p_.role(row) == StackRole::kForward && p_.is_parameter_size(2 * p_.bytes(row));
  }

  // What autocast computes in 32 bits: normalizations, losses, and the sums that they begin with.
  bool in_full_precision(size_t row) const {
    const std::string_view operation = p_.operation(row);
    for (const std::string_view full : {"layer_norm", "LayerNorm", "softmax", "Softmax", "Loss",
                                        "cross_entropy", "mbedding", "ToCopy", "AddBackward"}) {
      if (contains(operation, full)) return true;
    }
    if (operation == "einsum" || is_product(p_.called(row))) return false;
    if (!p_.names_operations() && p_.is_softmax(row)) return true;
    return p_.role(row) == StackRole::kForward && full_sizes_.contains(p_.bytes(row)) &&
           !contains(p_.operation_file(row), "torch/nn/");
  }

  // Sizes of 32-bit results, and the 16-bit copies of them that products begin with.
  void find_casts() {
    cast_.resize(p_.rows(), false);
    if (!p_.autocasts()) return;
    for (const OperationRun& run : p_.runs()) {
      const std::string_view operation = p_.operation(run.first);
      if (contains(operation, "layer_norm") || contains(operation, "embedding")) {
        full_sizes_.insert(p_.bytes(run.first));
      }
    }
    for (const OperationRun& run : p_.runs()) {
      if (p_.role(run.first) != StackRole::kForward) continue;
      for (uint32_t i = run.first; i < run.end; ++i) {
        if (!p_.is_cast(i)) continue;
        cast_[i] = true;
        if (!p_.is_weight_copy(i)) full_sizes_.insert(2 * p_.bytes(i));
      }
      for (uint32_t i = run.first; i + 1 < run.end && !p_.names_operations(); ++i) {
        cast_[i] = cast_[i] || full_sizes_.contains(2 * p_.bytes(i));
      }
    }
    keep_casts();
  }

  // Without autocast, what a copy was made from is what the graph keeps: of the copies that outlive
  // it, the last one stands for it.
  void keep_casts() {
    const AllocationColumns& all = p_.model().allocations;
    std::map<uint64_t, uint32_t> latest;   // by size
    std::map<uint32_t, uint32_t> longest;  // copy of a result
    for (uint32_t i = 0; i < p_.rows(); ++i) {
      if (p_.role(i) != StackRole::kForward || p_.is_weight_copy(i)) continue;
      if (cast_[i] && !p_.names_operations() && is_cast_of_weight(i)) continue;
      if (!cast_[i]) {
        latest[p_.bytes(i)] = i;
        continue;
      }
      const auto source = latest.find(2 * p_.bytes(i));
      if (source == latest.end()) continue;
      const uint32_t end = all.release(source->second);
      if (end < all.birth(i) || end >= all.release(i)) continue;
      const auto [it, fresh] = longest.try_emplace(source->second, i);
      if (!fresh && all.release(it->second) < all.release(i)) it->second = i;
    }
    for (const auto& [source, copy] : longest) cast_[copy] = false;
  }

  // Operations that autocast runs in 16 bits, and those that follow the type of their input.
  bool computes_in_half(size_t row, Estimate estimate) const {
    // Without names of operations, one in 32 bits may be among them.
    if (!half_.empty() && half_[row] && (p_.names_operations() || estimate != Estimate::kHigh))
      return true;
    const StackRole role = p_.role(row);
    if (role != StackRole::kForward && role != StackRole::kBackward) return false;
    const std::string_view operation = p_.operation(row);
    if (runs_in_32(operation)) return false;
    if (p_.is_weight_copy(row)) return false;  // of another device
    const std::string_view file = p_.operation_file(row);
    // Residual connections add to 32-bit sums.
    return role == StackRole::kBackward
               ? !contains(operation, "AddBackward") && !full_gradients_.contains(p_.bytes(row))
               : contains(file, "torch/nn/") || operation == "einsum" || is_product(p_.called(row));
  }

  // Gradients have the type of what the forward pass computed: around an operation that autocast
  // runs in 32 bits, those of the program's own lines have 32, in sizes that no layer has.
  void find_full_gradients() {
    std::set<uint64_t> of_layers;
    for (const OperationRun& run : p_.runs()) {
      const bool forward = p_.role(run.first) == StackRole::kForward;
      const bool of_layer = forward && contains(p_.operation_file(run.first), "torch/nn/");
      const bool full = !forward && runs_in_32(p_.operation(run.first));
      if (!of_layer && !full) continue;
      for (uint32_t i = run.first; i < run.end; ++i) {
        (full ? full_gradients_ : of_layers).insert(p_.bytes(i));
      }
    }
    for (const uint64_t bytes : of_layers) full_gradients_.erase(bytes);
  }

  // States per parameter: of AdamW two.
  void count_states() {
    uint64_t states = 0;
    uint64_t gradients = 0;
    std::map<uint64_t, uint64_t> seen;
    for (size_t i = 0; i < p_.rows(); ++i) {
      if (p_.category(i) == Category::kOptimizerState && p_.bytes(i) > 8) {
        states += p_.bytes(i);
        state_index_[i] = seen[p_.bytes(i)]++;
      }
    }
    for (const uint32_t row : p_.gradients()) gradients += p_.bytes(row);
    if (gradients != 0) states_ = std::max<uint64_t>(1, (states + gradients / 2) / gradients);
  }

  uint64_t with_optimizer(size_t row, uint64_t bytes) const {
    if (change_.optimizer == PlanOptimizer::kRecorded) return bytes;
    const bool state = p_.category(row) == Category::kOptimizerState;
    if (!state) {
      // Temporaries of the foreach implementation; the others work in place.
      const bool temporary =
          p_.role(row) == StackRole::kOptimizer && !is_of_weights(p_.category(row));
      return temporary && change_.optimizer != PlanOptimizer::kAdamW ? 0 : bytes;
    }
    switch (change_.optimizer) {
      case PlanOptimizer::kAdamW8bit:
        return state_bytes_8bit(bytes, planned_weight_bytes(p_, change_));
      case PlanOptimizer::kSgd:
        return 0;
      case PlanOptimizer::kSgdMomentum: {
        const auto index = state_index_.find(row);
        return index != state_index_.end() && index->second % states_ == 0 ? bytes : 0;
      }
      default:
        return bytes;
    }
  }

  uint64_t sharded(size_t row, uint64_t bytes) const {
    if (bytes == 0 || change_.ranks < 2) return bytes;
    const Category category = p_.category(row);
    const PlanShard shard = change_.shard;
    const bool divides = (shard >= PlanShard::kZero1 &&
                          (category == Category::kOptimizerState || in_optimizer(p_.role(row)))) ||
                         (shard == PlanShard::kZero2 && category == Category::kGradient) ||
                         (shard == PlanShard::kZero3 && category == Category::kParameter);
    return divides ? divided(bytes, change_.ranks) : bytes;
  }

  const RecordedProgram& p_;
  const PlanChange& change_;
  std::vector<bool> integer_;
  std::vector<bool> cast_;
  std::vector<bool> half_;  // of the program's own lines, under autocast
  std::set<uint64_t> full_sizes_;
  std::set<uint64_t> full_gradients_;       // sizes, under autocast
  std::set<uint64_t> algebra_sizes_;        // of what linear algebra computes
  std::map<size_t, uint64_t> state_index_;  // among the states of its size
  uint64_t states_ = 1;
  bool embeds_ = false;
  bool in_float64_;
  RecordedWidths widths_;
  std::set<uint64_t> optimized_sizes_;
  std::set<uint64_t> copied_sizes_;
};

}  // namespace

RecordedWidths recorded_widths(const RecordedProgram& program) {
  const ProcessModel& process = program.process();
  NumberWidth products = width_of_products(process.compute);
  if (products == NumberWidth::kUnknown) products = width_of_arithmetic(process.names);
  return {products, width_of_optimized(process.names), program.autocasts()};
}

bool adds_autocast(const RecordedProgram& program, const PlanChange& change) {
  return change.precision == PlanPrecision::kAutocast &&
         !recorded_widths(program).computes_in_16() &&
         !computes_in_float64(program.process().names);
}

uint64_t planned_weight_bytes(const RecordedProgram& program, const PlanChange& change) {
  if (change.precision == PlanPrecision::kHalf) return 2;
  if (change.precision == PlanPrecision::kFull) return 4;
  const RecordedWidths widths = recorded_widths(program);
  if (widths.all_in_16() || widths.optimized == NumberWidth::k16) return 2;
  return computes_in_float64(program.process().names) ? 8 : 4;
}

uint64_t state_bytes_8bit(uint64_t state_bytes, uint64_t number_bytes) {
  constexpr uint64_t kSmallest = 4096;  // numbers
  constexpr uint64_t kPerFactor = 256;
  const uint64_t numbers = state_bytes / number_bytes;
  if (numbers < kSmallest) return 4 * numbers;
  return numbers + 4 * ((numbers + kPerFactor - 1) / kPerFactor);
}

std::vector<uint64_t> planned_sizes(const RecordedProgram& program, const SizeLaws& laws,
                                    const PlanChange& change, Estimate estimate) {
  return PlannedSizes(program, change).run(laws, estimate);
}

}  // namespace tidemark
