#include "analysis/plan/laws/sample_pairs.h"

#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_set>
#include <utility>

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

  SamplePairs run() {
    survey();
    if (inputs_.empty()) return {};
    for (size_t i = 0; i < p_.rows(); ++i) {
      if (is_own_result(i)) add_samples_of(i);
    }
    for (size_t i = 0; i < p_.rows() && !samples_.empty(); ++i) {
      if (is_own_result(i)) add_vectors_of(p_.bytes(i));
    }
    for (size_t i = 0; i < p_.rows() && !matrices_.empty(); ++i) {
      if (matrices_.contains(p_.bytes(i)) && grows(i)) set_law(laws_[i]);
    }
    return std::move(matrices_);
  }

 private:
  // Sizes of inputs, or of data that is there before the first pass where nothing else is input.
  void survey() {
    std::map<uint64_t, uint64_t> data;
    for (size_t i = 0; i < p_.rows(); ++i) {
      const uint64_t bytes = p_.bytes(i);
      sizes_.insert(bytes);
      if (is_of_layer(i)) layer_sizes_.insert(bytes);
      if (first_module_ == 0 && is_of_module(i)) first_module_ = p_.model().allocations.stack(i);
      const bool is_data = p_.role(i) == StackRole::kUser && !p_.is_own_weight(i) &&
                           p_.model().allocations.birth(i) < p_.first_forward() &&
                           p_.model().allocations.release(i) > p_.last_forward();
      if (p_.category(i) == Category::kInput) inputs_[bytes] += bytes;
      if (is_data && bytes >= kLeastSamples) data[bytes] += bytes;
    }
    if (inputs_.empty()) inputs_ = std::move(data);
  }

  std::string_view file(size_t row) const { return p_.operation_file(row); }
  // What is computed for each sample alone; losses and similarities have functions of torch.nn,
  // too.
  bool is_of_layer(size_t row) const {
    if (p_.role(row) != StackRole::kForward || !contains(file(row), "torch/nn/")) return false;
    for (const std::string_view other : {"loss", "entropy", "softmax", "similarity", "distance"}) {
      if (contains(p_.operation(row), other)) return false;
    }
    return !file(row).ends_with("torch/nn/modules/loss.py");
  }
  // Losses may use functions such as relu.
  bool is_of_module(size_t row) const {
    return is_of_layer(row) && contains(file(row), "torch/nn/modules/");
  }
  bool is_own_result(size_t row) const {
    const StackRole role = p_.role(row);
    return (role == StackRole::kForward || role == StackRole::kUser) && laws_[row].scaled != 0 &&
           p_.category(row) != Category::kInput && !contains(file(row), "torch/") &&
           p_.bytes(row) >= kLeastBytes && !layer_sizes_.contains(p_.bytes(row)) &&
           !p_.is_parameter_size(p_.bytes(row));
  }

  void add_samples_of(size_t row) {
    constexpr size_t kEnough = 64;
    const uint64_t bytes = p_.bytes(row);
    if (samples_.size() >= kEnough || !seen_.insert(bytes).second) return;
    for (const uint64_t width : {4U, 2U, 8U}) {
      const auto samples = bytes % width == 0 ? whole_root(bytes / width) : std::nullopt;
      if (!samples || !are_samples(*samples, width) || !ends_pass(row)) continue;
      for (const uint64_t one : {1U, 2U, 4U, 8U}) add(*samples * *samples * one, *samples);
      samples_.insert(*samples);
      return;
    }
  }
  // What layers still use has a number for each pair of positions, as masks have.
  bool ends_pass(size_t row) const {
    for (size_t i = row + 1; i < p_.rows(); ++i) {
      if (p_.role(i) == StackRole::kBackward) return true;
      if (is_of_module(i)) return p_.model().allocations.stack(i) == first_module_;
    }
    return true;
  }
  // Of a vector for each pair, before its numbers are added up.
  void add_vectors_of(uint64_t bytes) {
    constexpr uint64_t kLeastWidth = 16;  // bytes of the vector
    if (matrices_.contains(bytes)) return;
    for (const uint64_t samples : samples_) {
      const uint64_t of_sample = bytes / samples;  // and all others
      const bool divides = bytes % samples == 0 && of_sample % samples == 0;
      if (!divides || of_sample / samples < kLeastWidth) continue;
      if (!sizes_.contains(of_sample) || p_.is_parameter_size(of_sample)) continue;
      for (const uint64_t part : {1U, 2U, 4U}) add(bytes / part, samples);  // other precisions
      return;
    }
  }
  void add(uint64_t bytes, uint64_t samples) {
    if (layer_sizes_.contains(bytes) || p_.is_parameter_size(bytes)) return;
    matrices_.try_emplace(bytes, samples);
  }
  bool are_samples(uint64_t count, uint64_t width) const {
    if (count < kLeastSamples || !divides_inputs(count)) return false;
    if (p_.is_parameter_size(width * count)) return false;
    return sizes_.contains(2 * count) || sizes_.contains(4 * count) || sizes_.contains(8 * count);
  }

  // Most of them: a validation may have a batch of its own.
  bool divides_inputs(uint64_t count) const {
    uint64_t all = 0;
    uint64_t divided = 0;
    for (const auto& [bytes, of_size] : inputs_) {
      all += of_size;
      if (2 * bytes % count == 0) divided += of_size;
    }
    return 2 * divided > all;
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
  std::map<uint64_t, uint64_t> inputs_;       // sizes, and the bytes of all of a size
  std::unordered_set<uint64_t> sizes_;        // of all allocations
  std::unordered_set<uint64_t> layer_sizes_;  // of results of PyTorch's modules
  uint32_t first_module_ = 0;                 // stack
  std::unordered_set<uint64_t> seen_;         // of the program's own results
  std::set<uint64_t> samples_;
  SamplePairs matrices_;
};

}  // namespace

SamplePairs find_sample_pairs(const RecordedProgram& program, SizeLaws& laws) {
  return PairSearch(program, laws).run();
}

}  // namespace tidemark
