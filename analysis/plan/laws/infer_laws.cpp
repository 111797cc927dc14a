#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <string_view>
#include <vector>

#include "analysis/plan/laws/attention_matrices.h"
#include "analysis/plan/laws/chunks.h"
#include "analysis/plan/laws/reduction_buffers.h"
#include "analysis/plan/laws/sample_pairs.h"
#include "analysis/plan/laws/size_law.h"
#include "analysis/plan/program/program.h"

namespace tidemark {

namespace {

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

constexpr uint64_t kScalarBytes = 512;  // a smaller block takes as much memory at any batch size

class LawInference {
 public:
  explicit LawInference(const RecordedProgram& program) : p_(program), laws_(p_.rows()) {}

  SizeLaws run() {
    for (size_t i = 0; i < p_.rows(); ++i) laws_[i] = law_of(i);
    input_unit_ = common_divisor_of_inputs();
    for (const OperationRun& run : p_.runs()) {
      if (p_.role(run.first) == StackRole::kForward) {
        find_casts(run);
      } else {
        find_weight_gradients(run);
      }
    }
    find_attention_matrices(p_, laws_);
    find_sample_pairs(p_, laws_);
    find_wide_results();
    for (const ReductionBuffer& b : reduction_buffers(p_)) {
      laws_[b.row] = {0, b.scaled, 1, 1, true, b.most};
    }
    find_chunks(p_, laws_);
    for (const Phase& phase : p_.evaluations()) find_own_batch(phase);
    for (size_t i = 0; i < p_.rows(); ++i) {
      if (p_.batch_parts().holds(i)) may_keep_batch(i);
    }
    return std::move(laws_);
  }

 private:
  SizeLaw fixed(size_t row, bool sure = true) const { return {p_.bytes(row), 0, 0, 0, sure}; }
  SizeLaw scaled(size_t row, bool sure = true) const { return {0, p_.bytes(row), 1, 1, sure}; }
  void fix(size_t row, bool sure = true) { laws_[row] = fixed(row, sure); }

  SizeLaw law_of(size_t row) const {
    if (p_.bytes(row) <= kScalarBytes) return fixed(row);
    // What the program prepares has nothing to do with the batch of a server.
    if (p_.precedes_steps(row)) return fixed(row, p_.passes().empty());
    if (p_.is_own_weight(row) || p_.is_own_state(row) || p_.is_weight_copy(row)) return fixed(row);
    if (p_.is_cached(row)) return fixed(row, false);  // its limit decides, and not one request
    switch (p_.category(row)) {
      case Category::kParameter:
      case Category::kGradient:
      case Category::kOptimizerState:
      case Category::kWorkspace:
      case Category::kCommunication:
        return fixed(row);
      case Category::kInput:
        return scaled(row, !p_.outlives_steps(row));  // perhaps all data
      case Category::kKvCache:                        // a pool may have a size of its own
        if (p_.is_pool(row)) return fixed(row, false);
        return scaled(row, !stays(row) && !outlives_requests(row));
      default:
        break;
    }
    switch (p_.role(row)) {
      case StackRole::kForward:
      case StackRole::kBackward:
        if (contains(p_.operation_file(row), "torch/distributed/")) return fixed(row);
        // Made once and kept, such as a mask or a table of positions.
        if (p_.outlives_steps(row) || p_.unpacks_weights(row)) return fixed(row, false);
        return scaled(row, !is_workspace(row));
      case StackRole::kData:
        return scaled(row);
      case StackRole::kUser:
      case StackRole::kNone:
        return law_of_users(row);
      default:
        return fixed(row);
    }
  }

  // A validation may have a batch of its own, which stays.
  void find_own_batch(const Phase& evaluation) {
    const BirthRange rows = births_within(p_.model(), evaluation.first, evaluation.last);
    for (size_t i = rows.begin; i < rows.end; ++i) may_keep_batch(i);
  }
  void may_keep_batch(size_t row) {
    if (laws_[row].scaled == 0 || !laws_[row].sure || laws_[row].chunk != 0) return;
    laws_[row].sure = false;
    laws_[row].other_seq = laws_[row].seq;
  }

  // cuDNN's workspaces have odd sizes, and cuDNN may choose another algorithm.
  bool is_workspace(size_t row) const {
    const uint64_t unit = contains(p_.operation(row), "onv") ? 512 : 16;
    return p_.bytes(row) > kSmallBytes && p_.bytes(row) % unit != 0;
  }

  // The program's own code holds copies of inputs and outputs, and of weights.
  SizeLaw law_of_users(size_t row) const {
    if (p_.is_parameter_size(p_.bytes(row))) return fixed(row, false);
    return stays(row) ? fixed(row, false) : scaled(row, false);
  }
  bool stays(size_t row) const {
    const AllocationColumns& all = p_.model().allocations;
    return all.release(row) == kNever || all.seeded(row) || p_.outlives_steps(row);
  }
  // The program frees it only when it ends, or with the error that ends it.
  bool outlives_requests(size_t row) const {
    const AllocationColumns& all = p_.model().allocations;
    return all.release(row) > all.birth(all.size() - 1);
  }

  // Divides what grows with the batch: the size of labels, one number each, where there are any.
  uint64_t common_divisor_of_inputs() const {
    uint64_t unit = 0;
    for (size_t i = 0; i < p_.rows(); ++i) {
      if (p_.category(i) == Category::kInput) unit = std::gcd(unit, p_.bytes(i));
    }
    return unit % 8 == 0 ? unit / 8 : 1;
  }
  bool may_grow(uint64_t bytes) const { return input_unit_ <= 1 || bytes % input_unit_ == 0; }

  // Copies of weights come before the result of the operation, one per weight.
  void find_casts(const OperationRun& run) {
    const std::string_view operation = p_.operation(run.first);
    const bool normalizes = contains(operation, "batch_norm");
    if (!normalizes && !p_.autocasts()) return;
    std::set<uint64_t> seen;
    for (uint32_t i = run.first; i < run.end; ++i) {
      const uint64_t bytes = p_.bytes(i);
      if (normalizes && p_.is_parameter_size(bytes)) fix(i);  // statistics of channels
      const bool result = i + 1 == run.end && run.end - run.first > 1 && may_grow(bytes);
      if (result && !ends_with_weight(run)) break;
      const bool copy = p_.autocasts() && !p_.names_operations() && p_.is_parameter_size(2 * bytes);
      if (copy && (run.end - run.first > 1 || !may_grow(bytes)) && seen.insert(bytes).second) {
        fix(i);
      }
    }
  }

  // Recomputation stops before the result that nothing needs: a bias and a weight are all there is.
  bool ends_with_weight(const OperationRun& run) const {
    constexpr uint64_t kLeastInputs = 16;
    const uint64_t bias = p_.bytes(run.first);
    return run.end - run.first == 2 && p_.is_parameter_size(2 * bias) &&
           p_.bytes(run.first + 1) >= kLeastInputs * bias;
  }

  // What the program's own lines compute in a pass is seldom larger than what layers do. Several
  // times as large are masks, distances or other blocks with a number for each pair of positions,
  // and so are their gradients.
  void find_wide_results() {
    constexpr uint64_t kSeveral = 4;
    uint64_t largest = 0;
    for (size_t i = 0; i < p_.rows(); ++i) {
      if (is_of_layer(i)) largest = std::max(largest, p_.bytes(i));
    }
    if (largest == 0) return;
    std::set<uint64_t> wide;
    for (size_t i = 0; i < p_.rows(); ++i) {
      const bool own =
          p_.role(i) == StackRole::kForward && !contains(p_.operation_file(i), "torch/");
      if (own && p_.bytes(i) > kSeveral * largest) wide.insert(p_.bytes(i));
    }
    for (size_t i = 0; i < p_.rows(); ++i) {
      SizeLaw& law = laws_[i];
      const StackRole role = p_.role(i);
      const bool in_pass = role == StackRole::kForward || role == StackRole::kBackward;
      if (!in_pass || law.scaled == 0 || law.batch != 1 || law.seq != 1) continue;
      if (wide.contains(p_.bytes(i))) law = {0, law.scaled, 1, 2, false, 0, 1, 1};
    }
  }
  bool is_of_layer(size_t row) const {
    return p_.role(row) == StackRole::kForward && contains(p_.operation_file(row), "torch/nn/");
  }

  // An operation computes the gradient of its input first, then those of its weights. Where these
  // are not the gradients that stay, they are added to those, or converted. Several operations of
  // one kind may follow each other.
  void find_weight_gradients(const OperationRun& run) {
    const std::string_view operation = p_.operation(run.first);
    const bool converts = contains(operation, "ToCopy");
    const bool no_input = RecordedProgram::gives_only_weights(operation);
    std::set<uint64_t> seen;
    std::vector<uint32_t> found;
    for (uint32_t i = run.end; i-- > run.first;) {
      const uint64_t bytes = p_.bytes(i);
      if (p_.category(i) == Category::kGradient) seen.insert(bytes);
      if (p_.category(i) == Category::kGradient || bytes <= kScalarBytes) continue;
      const bool half = p_.autocasts() && !converts && p_.is_parameter_size(2 * bytes);
      const bool of_weight = half || p_.is_parameter_size(bytes);
      const bool of_input = i == run.first && run.end - run.first > 1 && may_grow(bytes);
      if (!of_weight || (!no_input && (of_input || !seen.insert(bytes).second))) {
        seen.clear();
        continue;
      }
      // By chance a single result has such a size, a weight and a bias hardly ever do.
      const bool added = p_.accumulates() && p_.has_weights(i);
      if (half || added || !may_grow(bytes)) fix(i, run.end - run.first > 1);
      found.push_back(i);
    }
    if (found.size() > 1 && !converts && p_.has_weights(run.first)) {
      for (const uint32_t row : found) fix(row);
    }
  }

  const RecordedProgram& p_;
  SizeLaws laws_;
  uint64_t input_unit_ = 1;
};

}  // namespace

SizeLaws infer_laws(const RecordedProgram& program) {
  return LawInference(program).run();
}

}  // namespace tidemark
