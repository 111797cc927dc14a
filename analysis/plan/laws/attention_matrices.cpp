#include "analysis/plan/laws/attention_matrices.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "analysis/names/program_places.h"
#include "analysis/plan/laws/older_blocks.h"

namespace tidemark {

namespace {

using Sizes = std::unordered_set<uint64_t>;

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Other operations have results of these sizes only by chance.
bool makes_matrices(std::string_view operation, std::string_view file) {
  constexpr std::array<std::string_view, 10> kOthers = {
      "ddmm", "MmBackward", "LinearBackward", "Gelu",      "Relu",
      "Silu", "Norm",       "Convolution",    "Embedding", "norm"};
  if (contains(file, "torch/nn/modules/linear.py") || contains(file, "modules/activation.py")) {
    return false;
  }
  if (contains(file, "torch/nn/functional.py")) {
    return operation == "softmax" || operation == "dropout" ||
           operation == "multi_head_attention_forward" || operation == "einsum";
  }
  return std::none_of(kOthers.begin(), kOthers.end(),
                      [&](std::string_view part) { return contains(operation, part); });
}

// The calls of nn.Modules, as the lines of the program tell them apart.
class ModuleCalls {
 public:
  explicit ModuleCalls(const RecordedProgram& program)
      : p_(program), names_(program.process().names), places_(names_) {}

  // The innermost call around an allocation; 0: there is none.
  uint32_t around(uint32_t row) const { return around_place(place_of(row)); }
  // Around a softmax: not that of nn.Softmax itself, or of a module like it.
  uint32_t around_softmax(uint32_t row) const {
    const uint32_t place = place_of(row);
    const uint32_t caller = places_[place].caller;
    const bool of_module = caller != 0 && function_of(caller) == "forward" &&
                           contains(file_of(caller), "torch/nn/modules/activation.py");
    const uint32_t call = around_place(place);
    return of_module || is_module_of_softmax(place) ? around_place(places_[call].caller) : call;
  }
  // Whether a function makes it that the program names after attention, and that is no module.
  bool is_in_attention_function(uint32_t row) const {
    for (uint32_t place = place_of(row); place != 0; place = places_[place].caller) {
      if (function_of(place).ends_with("_call_impl")) return false;
      const bool named =
          contains(function_of(place), "attention") || contains(function_of(place), "attn");
      if (named && !contains(file_of(place), "torch/")) return true;
    }
    return false;
  }
  // The function of the program that calls a softmax.
  uint32_t function_around_softmax(uint32_t row) const {
    uint32_t place = place_of(row);
    if (is_module_of_softmax(place)) place = around_place(place);
    while (place != 0 &&
           (names_softmax(function_of(place)) || contains(file_of(place), "torch/"))) {
      place = places_[place].caller;
    }
    return place;
  }
  // Whether this call of a function makes a row, itself or in functions that it calls.
  bool is_made_in(uint32_t row, uint32_t function) const {
    for (uint32_t place = place_of(row); place != 0; place = places_[place].caller) {
      if (places_[place].caller == places_[function].caller &&
          places_.same_function(place, function)) {
        return true;
      }
    }
    return false;
  }
  bool is_within(uint32_t row, const std::unordered_set<uint32_t>& calls) const {
    for (uint32_t place = place_of(row); place != 0; place = places_[place].caller) {
      if (calls.contains(place)) return true;
    }
    return false;
  }

 private:
  uint32_t place_of(uint32_t row) const { return places_.of(p_.model().allocations.stack(row)); }
  bool is_module_of_softmax(uint32_t place) const {
    return function_of(place) == "forward" && names_softmax(file_stem(file_of(place)));
  }
  uint32_t around_place(uint32_t place) const {
    while (place != 0 && !function_of(place).ends_with("_call_impl")) place = places_[place].caller;
    return place;
  }
  std::string_view function_of(uint32_t place) const {
    return names_.string(places_[place].function);
  }
  std::string_view file_of(uint32_t place) const { return names_.string(places_[place].file); }

  const RecordedProgram& p_;
  const Dictionary& names_;
  Places places_;
};

// The nn.Modules that compute attention: those in which a softmax has results of these sizes. Where
// neither modules nor operations have names, the lines of a forward pass that call modules tell.
class AttentionModules {
 public:
  AttentionModules(const RecordedProgram& program, const ModuleCalls& calls, const Sizes& results)
      : p_(program), calls_(calls) {
    const bool by_lines = !program.knows_modules() && !program.names_operations();
    for (const OperationRun& run : program.runs()) {
      const bool named = program.is_softmax(run.first);
      const std::string_view called = program.called(run.first);
      const bool may_be = by_lines && calls.is_in_attention_function(run.first);
      if (!named && !may_be && called != "exp" && !contains(called, "softmax")) continue;
      for (uint32_t i = run.first; i < run.end; ++i) {
        if (!results.contains(program.bytes(i))) continue;
        if (!by_lines) add_module(program.module_path(i));
        if (by_lines && program.role(i) == StackRole::kForward) add_call(i);
      }
    }
    any_ = any_ || (by_lines && known_calls_.empty());
  }
  // Without names and lines any may be one.
  bool contain(uint32_t row) const {
    if (any_) return true;
    if (!known_calls_.empty()) {
      return p_.role(row) != StackRole::kForward || calls_.is_within(row, known_calls_);
    }
    const std::string& path = p_.module_path(row);
    for (size_t end = path.size(); end != path.npos && end != 0; end = path.rfind('.', end - 1)) {
      if (paths_.contains(path.substr(0, end))) return true;
    }
    return false;
  }

 private:
  void add_module(std::string path) {
    if (p_.module_class(path) == "Softmax") {
      const size_t dot = path.rfind('.');
      path.resize(dot == path.npos ? 0 : dot);
    }
    any_ = any_ || path.empty();
    paths_.insert(std::move(path));
  }
  void add_call(uint32_t row) {
    const uint32_t call = calls_.around_softmax(row);
    any_ = any_ || call == 0;
    known_calls_.insert(call);
  }

  const RecordedProgram& p_;
  const ModuleCalls& calls_;
  std::set<std::string> paths_;
  std::unordered_set<uint32_t> known_calls_;
  bool any_ = false;
};

class MatrixSearch {
 public:
  MatrixSearch(const RecordedProgram& program, SizeLaws& laws)
      : p_(program), calls_(program), laws_(laws) {}

  void run() {
    find_sizes();
    if (sizes_.empty()) return;
    for (const uint64_t bytes : sizes_) {  // in 16 bits or in 32, and masks
      for (const uint64_t size : {bytes / 2, 2 * bytes, bytes / 4}) copies_.insert(size);
    }
    const AttentionModules attention(p_, calls_, sizes_);
    find_spans(attention);
    find_linear(attention);
    for (const OperationRun& run : p_.runs()) {
      if (!makes_matrices(p_.operation(run.first), p_.operation_file(run.first))) continue;
      if (!attention.contain(run.first)) continue;
      for (uint32_t i = run.first; i < run.end; ++i) set_law(i);
    }
    // What an earlier pass left behind.
    for (size_t i = 0; i < p_.rows(); ++i) {
      if (p_.model().allocations.seeded(i) && p_.category(i) == Category::kActivation) set_law(i);
    }
    set_laws_of_older(p_, std::vector<bool>(p_.rows(), true), laws_);
  }

 private:
  static constexpr uint64_t kScalarBytes = 512;

  // The results of softmax that have the sizes of those of a matrix product, which is not so for
  // those of a router.
  void find_sizes() {
    Sizes of_products;
    for (const OperationRun& run : p_.runs()) {
      const std::string_view operation = p_.operation(run.first);
      const bool product = contains(operation, "bmmBackward") || contains(operation, "BmmBackward");
      for (uint32_t i = run.first; i < run.end; ++i) {
        if (p_.is_softmax(i) || ends_softmax(i)) sizes_.insert(p_.bytes(i));
        if (product || is_forward_product(i)) of_products.insert(p_.bytes(i));
      }
    }
    if (!p_.names_operations()) add_scores(of_products);
    if (!of_products.empty() || !p_.passes().empty()) {
      // Under autocast products have 16 bits, softmax 32.
      std::erase_if(sizes_, [&](uint64_t bytes) {
        return !of_products.contains(bytes) && !(p_.autocasts() && of_products.contains(bytes / 2));
      });
    }
    std::erase_if(sizes_, [](uint64_t bytes) { return bytes <= kScalarBytes; });
    if (sizes_.empty() && !p_.names_operations()) find_in_functions();
  }

  // Where a softmax has no frame of its own: the largest size that several lines of a function of
  // attention make, and that the pass did not have before.
  void find_in_functions() {
    Sizes before;
    std::map<uint64_t, std::set<uint32_t>> lines;  // frames, by size
    for (const OperationRun& run : p_.runs()) {
      if (p_.role(run.first) != StackRole::kForward) continue;
      const bool inside = calls_.is_in_attention_function(run.first);
      for (uint32_t i = run.first; i < run.end; ++i) {
        const uint32_t stack = p_.model().allocations.stack(i);
        if (inside) lines[p_.bytes(i)].insert(p_.process().names.stack(stack).frame);
        if (lines.empty()) before.insert(p_.bytes(i));
      }
    }
    uint64_t largest = kScalarBytes;
    for (const auto& [bytes, frames] : lines) {
      if (frames.size() > 1 && !before.contains(bytes)) largest = std::max(largest, bytes);
    }
    if (largest > kScalarBytes) sizes_.insert(largest);
  }

  // Products that have no frame: what a function makes before it calls a softmax of that size. One
  // that is called once in a pass may be that of a loss.
  void add_scores(Sizes& of_products) const {
    std::map<uint64_t, size_t> calls;  // by size
    uint32_t next = 0;                 // row after a softmax
    Sizes scores;
    for (const OperationRun& run : p_.runs()) {
      if (p_.role(run.first) != StackRole::kForward || !p_.is_softmax(run.first)) continue;
      if (next == 0 || run.first != next) scores = made_before(run.first);
      next = run.end;
      for (uint32_t i = run.first; i < run.end; ++i)
        calls[p_.bytes(i)] += scores.erase(p_.bytes(i));
    }
    for (const auto& [bytes, count] : calls) {
      if (count > p_.passes().size()) of_products.insert(bytes);
    }
  }
  // Sizes of the blocks that a function makes just before it calls a softmax.
  Sizes made_before(uint32_t softmax) const {
    constexpr uint32_t kFew = 64;
    Sizes sizes;
    const uint32_t function = calls_.function_around_softmax(softmax);
    for (uint32_t i = softmax; function != 0 && i != 0 && softmax - i < kFew; --i) {
      const bool inside = p_.role(i - 1) == StackRole::kForward &&
                          !p_.model().allocations.seeded(i - 1) &&
                          calls_.is_made_in(i - 1, function);
      if (!inside) break;
      sizes.insert(p_.bytes(i - 1));
    }
    return sizes;
  }

  bool is_forward_product(uint32_t row) const {
    return p_.role(row) == StackRole::kForward &&
           (p_.operation(row) == "einsum" || is_product(p_.called(row)));
  }
  bool is_backward_product(uint32_t row) const {
    const std::string_view operation = p_.operation(row);
    return p_.role(row) == StackRole::kBackward &&
           (contains(operation, "mmBackward") || contains(operation, "MmBackward") ||
            contains(operation, "LinearBackward") || contains(operation, "ConvolutionBackward"));
  }
  bool is_product_row(uint32_t row) const {
    return is_forward_product(row) || is_backward_product(row);
  }

  // A softmax that the program calls itself, or computes: an exponential whose quotient by a sum is
  // the factor of the next product. That of a loss is followed by none, that of an activation
  // function has no sum.
  bool ends_softmax(uint32_t row) const {
    if (p_.role(row) != StackRole::kForward) return false;
    if (contains(p_.called(row), "softmax") && !contains(p_.called(row), "log")) return true;
    if (p_.called(row) != "exp") return false;
    const uint64_t bytes = p_.bytes(row);
    bool sums = follows_log_of_sum(row);
    for (uint32_t i = row + 1; i < p_.rows() && p_.role(i) == StackRole::kForward; ++i) {
      if (is_forward_product(i)) return sums;
      const uint64_t next = p_.bytes(i);
      sums = sums || p_.called(i).starts_with("sum");
      const bool like = is_like(next, bytes) || next <= kScalarBytes;
      if (!like && p_.operation(i) != p_.operation(row)) return false;
    }
    return false;
  }
  // exp(x - logsumexp(x)).
  bool follows_log_of_sum(uint32_t row) const {
    for (uint32_t i = row; i-- != 0 && !is_product_row(i) && p_.role(i) == StackRole::kForward;) {
      if (p_.called(i) == "logsumexp") return true;
    }
    return false;
  }
  static bool is_like(uint64_t bytes, uint64_t matrix) {
    return bytes == matrix || 2 * bytes == matrix || bytes == 2 * matrix || 4 * bytes == matrix;
  }

  bool names_nodes(uint32_t row) const { return contains(p_.operation(row), "Backward"); }
  // Whether operations are named here, so that the place of a block tells what it is.
  bool is_placed(uint32_t row) const {
    return p_.role(row) == StackRole::kForward ? p_.names_operations() && has_forward_spans_
                                               : names_nodes(row) && has_backward_spans_;
  }

  void find_spans(const AttentionModules& attention) {
    in_span_.assign(p_.rows(), false);
    for (const OperationRun& run : p_.runs()) {
      if (!attention.contain(run.first)) continue;
      const std::string_view called = p_.called(run.first);
      const bool whole = contains(called, "attention");  // with a softmax inside
      const bool forward = p_.role(run.first) == StackRole::kForward;
      for (uint32_t i = run.first; i < run.end; ++i) {
        if (!sizes_.contains(p_.bytes(i))) continue;
        const bool ends = forward ? ends_softmax(i) : is_node_of_softmax(i);
        if (whole || (ends && (p_.names_operations() || !forward))) add_span(i);
      }
    }
  }
  bool is_node_of_softmax(uint32_t row) const {
    const std::string_view operation = p_.operation(row);
    return p_.is_softmax(row) || operation == "ExpBackward0";
  }

  // From the product before a result of softmax to the one after it, with what these copy to begin
  // with; the results of the second one are no matrices.
  void add_span(uint32_t row) {
    const StackRole role = p_.role(row);
    const bool forward = role == StackRole::kForward;
    (forward ? has_forward_spans_ : has_backward_spans_) = true;
    const uint64_t bytes = p_.bytes(row);
    const auto in_pass = [&](uint32_t i) {
      return p_.role(i) == role && !p_.model().allocations.seeded(i);
    };
    uint32_t begin = row;
    while (begin != 0 && !in_span_[begin - 1] && in_pass(begin - 1) && !is_product_row(begin)) {
      --begin;
    }
    if (begin != row && is_product_row(begin)) mark_results(begin, bytes);
    for (uint32_t i = begin; i < p_.rows() && in_pass(i); ++i) {
      if (i > row && is_product_row(i)) {
        mark_copies(i, bytes);
        break;
      }
      if (!is_product_row(i)) in_span_[i] = true;
    }
  }
  // The last rows of a product that have the size of a matrix: `last` is the last of all.
  void mark_results(uint32_t last, uint64_t bytes) {
    const uint32_t stack = p_.model().allocations.stack(last);
    for (uint32_t i = last + 1; i-- != 0;) {
      if (p_.model().allocations.stack(i) != stack) break;
      if (p_.bytes(i) != bytes && !(p_.autocasts() && 2 * p_.bytes(i) == bytes)) continue;
      in_span_[i] = true;
      break;
    }
  }
  // What a product copies of a matrix before it computes.
  void mark_copies(uint32_t first, uint64_t bytes) {
    const uint32_t stack = p_.model().allocations.stack(first);
    for (uint32_t i = first; i + 1 < p_.rows(); ++i) {
      if (p_.model().allocations.stack(i + 1) != stack || p_.bytes(i) != bytes) break;
      in_span_[i] = true;
    }
  }

  // Sizes of results that cannot be matrices.
  void find_linear(const AttentionModules& attention) {
    add_before_matrices();
    for (const OperationRun& run : p_.runs()) {
      const bool other = !makes_matrices(p_.operation(run.first), p_.operation_file(run.first));
      for (uint32_t i = run.first; i < run.end; ++i) {
        if (!other && !(is_placed(i) && !in_span_[i] && is_product_row(i))) continue;
        linear_.insert(p_.bytes(i));
        if (other && attention.contain(i)) linear_in_attention_.insert(p_.bytes(i));
      }
    }
  }
  // What a pass allocates before the first matrix has the sizes of its tokens.
  void add_before_matrices() {
    for (const OperationRun& run : p_.runs()) {
      for (uint32_t i = run.first; i < run.end; ++i) {
        const uint64_t bytes = p_.bytes(i);
        const bool half = p_.autocasts() && sizes_.contains(2 * bytes);
        if (half || sizes_.contains(bytes)) return;
        linear_.insert(bytes);
      }
    }
  }

  void set_law(size_t row) {
    const uint64_t bytes = p_.bytes(row);
    const bool result = sizes_.contains(bytes);
    if (laws_[row].scaled == 0 || (!result && !copies_.contains(bytes))) return;
    const bool placed =
        !p_.model().allocations.seeded(row) && is_placed(static_cast<uint32_t>(row));
    const bool linear = linear_.contains(bytes);
    if (placed && !in_span_[row] && linear) return;
    // Queries, keys and values have the sizes of linear results, too.
    const bool is_square = (result && (!linear || !placed || in_span_[row])) || !linear;
    const bool clear = result ? !linear_in_attention_.contains(bytes) : is_square;
    laws_[row].seq = is_square ? 2 : 1;
    if (clear && !is_square) return;
    laws_[row].sure = false;
    laws_[row].other_batch = laws_[row].batch;
    laws_[row].other_seq = is_square ? 1 : 2;
  }

  const RecordedProgram& p_;
  ModuleCalls calls_;
  SizeLaws& laws_;
  Sizes sizes_;   // of the results of softmax
  Sizes copies_;  // of what is made of them
  Sizes linear_;
  Sizes linear_in_attention_;
  std::vector<bool> in_span_;  // by row
  bool has_forward_spans_ = false;
  bool has_backward_spans_ = false;
};

}  // namespace

void find_attention_matrices(const RecordedProgram& program, SizeLaws& laws) {
  MatrixSearch(program, laws).run();
}

}  // namespace tidemark
