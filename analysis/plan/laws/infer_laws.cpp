#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "analysis/plan/laws/reduction_buffers.h"
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
    find_attention_matrices();
    for (const ReductionBuffer& b : reduction_buffers(p_)) {
      laws_[b.row] = {0, b.scaled, 1, 1, true, b.most};
    }
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
        return scaled(row, !stays(row));
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
    if (laws_[row].scaled == 0 || !laws_[row].sure) return;
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

  // Softmax over the products of queries and keys. Its results have the sizes of those of a batched
  // matrix product, which is not so for those of a router.
  void find_attention_matrices() {
    std::unordered_set<uint64_t> of_softmax;
    std::unordered_set<uint64_t> of_products;
    for (const OperationRun& run : p_.runs()) {
      const std::string_view operation = p_.operation(run.first);
      const bool product = contains(operation, "bmmBackward") || contains(operation, "BmmBackward");
      for (uint32_t i = run.first; i < run.end; ++i) {
        if (is_softmax(operation) || ends_softmax(i)) of_softmax.insert(p_.bytes(i));
        if (product || is_forward_product(i)) of_products.insert(p_.bytes(i));
      }
    }
    if (!of_products.empty() || !p_.passes().empty()) {
      // Under autocast products have 16 bits, softmax 32.
      std::erase_if(of_softmax, [&](uint64_t bytes) {
        return !of_products.contains(bytes) && !(p_.autocasts() && of_products.contains(bytes / 2));
      });
    }
    std::erase_if(of_softmax, [](uint64_t bytes) { return bytes <= kScalarBytes; });
    if (of_softmax.empty()) return;
    std::unordered_set<uint64_t> copies;  // in 16 bits or in 32, and masks
    for (const uint64_t bytes : of_softmax) {
      for (const uint64_t size : {bytes / 2, 2 * bytes, bytes / 4}) copies.insert(size);
    }
    const AttentionModules attention(p_, of_softmax);
    const LinearSizes linear(p_, attention, of_softmax);
    for (const OperationRun& run : p_.runs()) {
      if (!makes_matrices(p_.operation(run.first), p_.operation_file(run.first))) continue;
      if (!attention.contain(p_.module_path(run.first))) continue;
      for (uint32_t i = run.first; i < run.end; ++i) {
        const uint64_t bytes = p_.bytes(i);
        const bool result = of_softmax.contains(bytes);
        if (laws_[i].scaled == 0 || (!result && !copies.contains(bytes))) continue;
        // Queries, keys and values have the sizes of linear results, too.
        const bool is_square = result || !linear.anywhere.contains(bytes);
        const bool clear = result ? !linear.in_attention.contains(bytes) : is_square;
        laws_[i].seq = is_square ? 2 : 1;
        if (clear && !is_square) continue;
        laws_[i].sure = false;
        laws_[i].other_batch = laws_[i].batch;
        laws_[i].other_seq = is_square ? 1 : 2;
      }
    }
  }

  static bool is_softmax(std::string_view operation) {
    return operation == "SoftmaxBackward0" || operation == "softmax";
  }

  bool is_forward_product(uint32_t row) const {
    return p_.role(row) == StackRole::kForward &&
           (p_.operation(row) == "einsum" || is_product(p_.called(row)));
  }

  // A softmax that the program calls itself, or computes: an exponential whose quotient by a sum is
  // the factor of the next product. That of a loss is followed by none.
  bool ends_softmax(uint32_t row) const {
    if (p_.role(row) != StackRole::kForward) return false;
    if (p_.called(row) == "softmax" || p_.called(row) == "_softmax") return true;
    if (p_.called(row) != "exp") return false;
    const uint64_t bytes = p_.bytes(row);
    for (uint32_t i = row + 1; i < p_.rows() && p_.role(i) == StackRole::kForward; ++i) {
      if (is_forward_product(i)) return true;
      const uint64_t next = p_.bytes(i);
      const bool like = next == bytes || 2 * next == bytes || next == 2 * bytes ||
                        4 * next == bytes || next <= kScalarBytes;
      if (!like && p_.operation(i) != p_.operation(row)) return false;
    }
    return false;
  }

  // The nn.Modules that compute attention: those in which a softmax has results of these sizes.
  class AttentionModules {
   public:
    AttentionModules(const RecordedProgram& program, const std::unordered_set<uint64_t>& results) {
      for (const OperationRun& run : program.runs()) {
        const bool named = is_softmax(program.operation(run.first));
        const std::string_view called = program.called(run.first);
        if (!named && called != "exp" && !contains(called, "softmax")) continue;
        for (uint32_t i = run.first; i < run.end; ++i) {
          if (results.contains(program.bytes(i))) add(program, program.module_path(i));
        }
      }
    }
    // Without names of modules any may be one.
    bool contain(const std::string& path) const {
      if (any_) return true;
      for (size_t end = path.size(); end != path.npos && end != 0; end = path.rfind('.', end - 1)) {
        if (paths_.contains(path.substr(0, end))) return true;
      }
      return false;
    }

   private:
    void add(const RecordedProgram& program, std::string path) {
      if (program.module_class(path) == "Softmax") {
        const size_t dot = path.rfind('.');
        path.resize(dot == path.npos ? 0 : dot);
      }
      any_ = any_ || path.empty();
      paths_.insert(std::move(path));
    }
    std::set<std::string> paths_;
    bool any_ = false;
  };

  // Of results that cannot be matrices.
  struct LinearSizes {
    LinearSizes(const RecordedProgram& program, const AttentionModules& attention,
                const std::unordered_set<uint64_t>& matrices) {
      add_before_matrices(program, matrices);
      for (const OperationRun& run : program.runs()) {
        if (makes_matrices(program.operation(run.first), program.operation_file(run.first))) {
          continue;
        }
        for (uint32_t i = run.first; i < run.end; ++i) {
          anywhere.insert(program.bytes(i));
          if (attention.contain(program.module_path(i))) in_attention.insert(program.bytes(i));
        }
      }
    }
    // What a pass allocates before the first matrix has the sizes of its tokens.
    void add_before_matrices(const RecordedProgram& program,
                             const std::unordered_set<uint64_t>& matrices) {
      for (const OperationRun& run : program.runs()) {
        for (uint32_t i = run.first; i < run.end; ++i) {
          const uint64_t bytes = program.bytes(i);
          const bool half = program.autocasts() && matrices.contains(2 * bytes);
          if (half || matrices.contains(bytes)) return;
          anywhere.insert(program.bytes(i));
        }
      }
    }
    std::unordered_set<uint64_t> anywhere;
    std::unordered_set<uint64_t> in_attention;
  };

  // Other operations have results of these sizes only by chance.
  static bool makes_matrices(std::string_view operation, std::string_view file) {
    constexpr std::array<std::string_view, 10> kOthers = {
        "ddmm", "MmBackward", "LinearBackward", "Gelu",      "Relu",
        "Silu", "Norm",       "Convolution",    "Embedding", "norm"};
    if (contains(file, "torch/nn/modules/linear.py") || contains(file, "modules/activation.py")) {
      return false;
    }
    if (contains(file, "torch/nn/functional.py")) {
      return operation == "softmax" || operation == "dropout" ||
             operation == "multi_head_attention_forward";
    }
    return std::none_of(kOthers.begin(), kOthers.end(),
                        [&](std::string_view part) { return contains(operation, part); });
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
