#include "analysis/plan/laws/sample_pairs.h"

#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string_view>
#include <unordered_set>

namespace tidemark {

namespace {

constexpr uint64_t kLeastSamples = 256;
constexpr uint64_t kLeastBytes = 1U << 20U;

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::optional<uint64_t> whole_root(uint64_t number) {
  const auto root = static_cast<uint64_t>(std::llround(std::sqrt(static_cast<double>(number))));
  return root * root == number ? std::optional(root) : std::nullopt;
}

class PairSearch {
 public:
  PairSearch(const RecordedProgram& program, SizeLaws& laws) : p_(program), laws_(laws) {}

  void run() {
    survey();
    if (input_unit_ == 0) return;
    for (size_t i = 0; i < p_.rows(); ++i) {
      if (is_own_result(i)) add_samples_of(p_.bytes(i));
    }
    for (size_t i = 0; i < p_.rows() && !matrices_.empty(); ++i) {
      if (matrices_.contains(p_.bytes(i)) && grows(i)) set_law(laws_[i]);
    }
  }

 private:
  // Sizes of inputs, or of data that is there before the first pass where nothing else is input.
  void survey() {
    uint64_t data_unit = 0;
    for (size_t i = 0; i < p_.rows(); ++i) {
      const uint64_t bytes = p_.bytes(i);
      sizes_.insert(bytes);
      if (is_of_layer(i)) layer_sizes_.insert(bytes);
      const bool data = p_.role(i) == StackRole::kUser && !p_.is_own_weight(i) &&
                        p_.model().allocations.birth(i) < p_.first_forward() &&
                        p_.model().allocations.release(i) > p_.last_forward();
      if (p_.category(i) == Category::kInput) input_unit_ = std::gcd(input_unit_, bytes);
      if (data && bytes >= kLeastSamples) data_unit = std::gcd(data_unit, bytes);
    }
    if (input_unit_ == 0) input_unit_ = data_unit;
  }

  std::string_view file(size_t row) const { return p_.operation_file(row); }
  bool is_of_layer(size_t row) const {
    return p_.role(row) == StackRole::kForward && contains(file(row), "torch/nn/modules/") &&
           !file(row).ends_with("torch/nn/modules/loss.py");
  }
  bool is_own_result(size_t row) const {
    const StackRole role = p_.role(row);
    return (role == StackRole::kForward || role == StackRole::kUser) && laws_[row].scaled != 0 &&
           p_.category(row) != Category::kInput && !contains(file(row), "torch/") &&
           p_.bytes(row) >= kLeastBytes && !layer_sizes_.contains(p_.bytes(row)) &&
           !p_.is_parameter_size(p_.bytes(row));
  }

  void add_samples_of(uint64_t bytes) {
    if (matrices_.contains(bytes)) return;
    for (const uint64_t width : {4U, 2U, 8U}) {
      const auto samples = bytes % width == 0 ? whole_root(bytes / width) : std::nullopt;
      if (!samples || !are_samples(*samples)) continue;
      for (const uint64_t one : {1U, 2U, 4U, 8U}) {
        const uint64_t size = *samples * *samples * one;
        if (!layer_sizes_.contains(size) && !p_.is_parameter_size(size)) matrices_.insert(size);
      }
      return;
    }
  }
  bool are_samples(uint64_t count) const {
    if (count < kLeastSamples || 2 * input_unit_ % count != 0) return false;
    bool counted = false;
    for (const uint64_t width : {2U, 4U, 8U}) {
      if (p_.is_parameter_size(width * count)) return false;
      counted = counted || sizes_.contains(width * count);
    }
    return counted;
  }

  bool grows(size_t row) const {
    const SizeLaw& law = laws_[row];
    return law.scaled != 0 && law.seq < 2 && law.batch == 1 &&
           p_.category(row) != Category::kInput && !is_of_layer(row);
  }
  // Whether the samples are those of a batch or of its sequences as well is not known.
  static void set_law(SizeLaw& law) {
    law.batch = 2;
    law.seq = 0;
    law.sure = false;
    law.other_batch = 1;
    law.other_seq = 1;
  }

  const RecordedProgram& p_;
  SizeLaws& laws_;
  uint64_t input_unit_ = 0;                   // divides the sizes of all inputs
  std::unordered_set<uint64_t> sizes_;        // of all allocations
  std::unordered_set<uint64_t> layer_sizes_;  // of results of PyTorch's modules
  std::unordered_set<uint64_t> matrices_;     // sizes
};

}  // namespace

void find_sample_pairs(const RecordedProgram& program, SizeLaws& laws) {
  PairSearch(program, laws).run();
}

}  // namespace tidemark
