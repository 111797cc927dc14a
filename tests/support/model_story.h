// A model whose passes are told one by one, for programs with several of them.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "tests/support/story.h"

namespace tidemark {

using Blocks = std::vector<uint64_t>;

inline constexpr uint64_t kScalar = 4;

inline uint64_t peak_of(const Trace& trace) {
  return trace.model().processes[0].framework[0].allocated_peak.bytes;
}

// The promise of the finding's advice, against the same run without the cause.
inline void expect_saves(const Finding& f, const Trace& faulty, const Trace& repaired,
                         double error = 0.1) {
  ASSERT_FALSE(f.advice.empty());
  const auto saved = static_cast<double>(peak_of(faulty) - peak_of(repaired));
  EXPECT_NEAR(static_cast<double>(f.advice[0].saves_bytes), saved, error * saved);
}

// A model of equal layers, whose passes are called from different lines.
class Model {
 public:
  explicit Model(Story& s) : s_(s) {
    for (const uint64_t bytes : kParameters) parameters_.push_back(s_.alloc(bytes, s_.setup()));
  }

  Blocks forward(const std::string& caller, uint64_t parts = 1) {
    Blocks kept;
    for (int i = 0; i < kLayers; ++i) {
      kept.push_back(s_.alloc(8 * kMiB / parts, s_.forward(1, caller)));
      s_.free(s_.alloc(4 * kMiB / parts, s_.forward(2, caller)));
      kept.push_back(s_.alloc(8 * kMiB / parts, s_.forward(3, caller)));
    }
    kept.push_back(s_.alloc(6 * kMiB / parts, s_.forward(9, caller)));
    return kept;
  }

  // Frees the activations, the last first, and leaves gradients.
  void backward(Blocks kept, Blocks& gradients, Blocks* state = nullptr) {
    const bool adds = !gradients.empty();
    const Blocks passed_on = state != nullptr ? *state : Blocks{};
    if (state != nullptr) state->clear();
    for (const uint64_t bytes : kParameters) {
      const uint64_t passed = s_.alloc(8 * kMiB, 0);
      const uint64_t gradient = s_.alloc(bytes, 0);
      if (state != nullptr && kept.size() <= kPerParameter && state->empty()) {
        state->push_back(s_.alloc(2 * kMiB, 0));
      }
      for (size_t k = 0; k < kPerParameter && !kept.empty(); ++k) {
        s_.free(kept.back());
        kept.pop_back();
      }
      if (adds) {
        s_.free(gradient);
      } else {
        gradients.push_back(gradient);
      }
      s_.free(passed);
    }
    for (const uint64_t block : passed_on) s_.free(block);
    for (const uint64_t block : kept) s_.free(block);
  }

  // `momentum`: the optimizer has states.
  void step(Blocks& gradients, bool momentum = false) {
    s_.optimizer_mark();
    for (const uint64_t bytes : kParameters) {
      if (momentum && !has_states_) s_.alloc(bytes, s_.optimizer("_single_tensor_sgd"));
    }
    has_states_ = true;
    s_.free(s_.alloc(kMiB, s_.optimizer("_single_tensor_sgd")));
    for (const uint64_t block : gradients) s_.free(block);
    gradients.clear();
  }

 private:
  static constexpr int kLayers = 6;
  static constexpr size_t kPerParameter = 3;
  static constexpr std::array<uint64_t, 5> kParameters = {2 * kMiB, 3 * kMiB, 8192, 5 * kMiB,
                                                          12288};

  Story& s_;
  bool has_states_ = false;
  Blocks parameters_;
};

}  // namespace tidemark
