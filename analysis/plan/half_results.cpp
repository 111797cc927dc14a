#include "analysis/plan/half_results.h"

#include <cstdint>
#include <set>

namespace tidemark {

namespace {

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

class HalfResults {
 public:
  HalfResults(const RecordedProgram& program, const SizeLaws& laws)
      : p_(program), laws_(laws), half_(program.rows(), false) {}

  std::vector<bool> run() {
    find_matrices();
    find_results();
    return std::move(half_);
  }

 private:
  // Attention matrices have 16 bits from their product to the first operation that autocast runs in
  // 32. Of a quotient that the next product takes, the graph keeps the copy in 16 bits.
  void find_matrices() {
    uint64_t matrix = 0;
    bool full = false;
    std::vector<uint32_t> since_product;
    for (const OperationRun& run : p_.runs()) {
      if (p_.role(run.first) != StackRole::kForward) continue;
      for (uint32_t i = run.first; i < run.end; ++i) {
        if (is_forward_product(i)) {
          if (full && !since_product.empty()) keep_half_quotient(since_product.back(), run);
          matrix = laws_[i].seq == 2 ? p_.bytes(i) : 0;
          full = false;
          since_product.clear();
        } else if (matrix != 0 && p_.bytes(i) == matrix && laws_[i].seq == 2) {
          const bool widens = !full && widens_under_autocast(i);
          for (size_t k = 0; widens && k < since_product.size(); ++k)
            half_[since_product[k]] = true;
          full = full || widens;
          since_product.push_back(i);
        }
      }
    }
  }
  void keep_half_quotient(uint32_t row, const OperationRun& product) {
    const bool divides = p_.names_operations() ? p_.called(row).starts_with("div")
                                               : !contains(p_.operation_file(row), "torch/");
    const AllocationColumns& all = p_.model().allocations;
    const bool kept = product.end < p_.rows() && all.release(row) > all.birth(product.end);
    if (divides && kept) half_[row] = true;
  }
  // What the program's own lines make of a product's result, in a size that nothing in 32 bits has,
  // such as the hidden layer of a feed-forward block.
  void find_results() {
    std::set<uint64_t> products;
    std::set<uint64_t> full;
    if (!p_.runs().empty()) full.insert(p_.bytes(p_.runs().front().first));
    for (const OperationRun& run : p_.runs()) {
      if (p_.role(run.first) != StackRole::kForward) continue;
      for (uint32_t i = run.first; i < run.end; ++i) {
        const bool product = is_forward_product(i) || is_linear(i);
        if (product) products.insert(p_.bytes(i));
        if (!product && is_full(i)) full.insert(p_.bytes(i));
      }
    }
    for (const OperationRun& run : p_.runs()) {
      if (p_.role(run.first) != StackRole::kForward) continue;
      for (uint32_t i = run.first; i < run.end; ++i) {
        const uint64_t bytes = p_.bytes(i);
        if (products.contains(bytes) && !full.contains(bytes)) half_[i] = true;
      }
    }
  }
  bool is_linear(uint32_t row) const {
    return contains(p_.operation_file(row), "torch/nn/modules/linear.py") ||
           contains(p_.operation_file(row), "torch/nn/modules/conv.py");
  }
  bool is_full(uint32_t row) const {
    return widens_under_autocast(row) || runs_in_32(p_.operation(row)) ||
           contains(p_.operation_file(row), "torch/_tensor.py");  // x ** 2
  }

  bool is_forward_product(uint32_t row) const {
    return p_.operation(row) == "einsum" || is_product(p_.called(row));
  }
  // As autocast lists them.
  bool widens_under_autocast(uint32_t row) const {
    const std::string_view called = p_.called(row);
    if (called.empty()) return p_.is_softmax(row);
    return contains(called, "exp") || contains(called, "softmax") || contains(called, "log") ||
           called.starts_with("pow") || called.starts_with("sum");
  }

  const RecordedProgram& p_;
  const SizeLaws& laws_;
  std::vector<bool> half_;
};

}  // namespace

bool runs_in_32(std::string_view operation) {
  for (const std::string_view full :
       {"norm", "Norm", "softmax", "Softmax", "loss", "Loss", "cross_entropy", "mbedding", "ToCopy",
        "PowBackward", "ExpBackward", "LogBackward", "SoftplusBackward", "CdistBackward"}) {
    if (contains(operation, full)) return true;
  }
  return false;
}

std::vector<bool> half_results(const RecordedProgram& program, const SizeLaws& laws) {
  return HalfResults(program, laws).run();
}

}  // namespace tidemark
