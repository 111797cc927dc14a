#include "analysis/findings/operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>
#include <string_view>

#include "analysis/names/stack_lines.h"
#include "analysis/plan/laws/sample_pairs.h"
#include "analysis/wording.h"

namespace tidemark {

namespace {

// Where torch.compile and Triton try kernels, with copies of what these work on.
bool is_of_autotuning(std::string_view file) {
  const auto has = [&](std::string_view part) { return file.find(part) != file.npos; };
  return has("torch/_inductor/runtime/triton_heuristics") ||
         has("torch/_inductor/runtime/benchmarking") || has("torch/_inductor/select_algorithm") ||
         has("torch/_inductor/autotune_process") || has("triton/runtime/autotuner") ||
         has("triton/testing.py");
}

std::string in_lower_case(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

// Numbers of 32 bits, as many as the square of those in another block: a column beside a row.
std::string broadcast_text(const DeviceEvidence& d, const Operation& o) {
  if (d.roles->of(o.stack) != StackRole::kUser) return "";
  const uint64_t numbers = o.largest_bytes / 4;
  const auto side = static_cast<uint64_t>(std::llround(std::sqrt(static_cast<double>(numbers))));
  if (side < 256 || side * side != numbers || o.largest_bytes % 4 != 0) return "";
  const auto& kinds = d.model->allocations.kinds();
  const bool has_side = std::any_of(kinds.begin(), kinds.end(), [&](const AllocationKind& kind) {
    return kind.requested_bytes == 4 * side;
  });
  if (!has_side) return "";
  return fmt::format(
      "; look at the shapes first: each block has {0} x {0} numbers, as a tensor of "
      "({0}, 1) makes with one of ({0},)",
      side);
}

// What has a row and a column for every sample, where it is no broadcast by mistake.
std::string pairs_text(const DeviceEvidence& d, const Operation& o) {
  const RecordedProgram program(*d.process, *d.model, *d.roles, d.steps, d.categories);
  SizeLaws laws = infer_laws(program);
  const SamplePairs pairs = find_sample_pairs(program, laws);
  for (const size_t i : o.rows) {
    const auto pair = pairs.find(program.bytes(i));
    if (pair == pairs.end()) continue;
    return fmt::format(
        "; its blocks have a row and a column for each of {} samples and grow with the square of "
        "the batch",
        grouped(pair->second));
  }
  return "";
}

}  // namespace

Remedy remedy_for(const Dictionary& names, const Operation& o) {
  Remedy remedy = Remedy::kSplit;
  for (const uint32_t stack : o.stacks) {
    bool softmax = false;
    uint32_t layers = 0;  // one in the other
    bool loss = false;
    for (const uint32_t frame : names.frames_of(stack)) {
      const Frame& f = names.frame(frame);
      const std::string_view file = names.string(f.file);
      if (is_of_autotuning(file)) return Remedy::kAutotuning;
      const std::string function = in_lower_case(names.string(f.function));
      const auto has = [&](std::string_view part) {
        return function.find(part) != std::string::npos;
      };
      if (has("cross_entropy") || has("nll_loss") || has("nllloss") || has("logsoftmax") ||
          has("log_softmax")) {
        return Remedy::kLoss;
      }
      if (has("one_hot")) return Remedy::kOneHot;
      if (has("attention") || has("attn")) remedy = Remedy::kAttention;
      // The program's own functions may be named after a loss.
      const bool own = file.ends_with(".py") && file.find("torch/") == file.npos;
      softmax |= has("softmax") && !own;
      layers += has("forward") && own ? 1U : 0U;
      loss |= own &&
              (has("loss") || has("criterion") ||
               in_lower_case(file.substr(file.rfind('/') + 1)).find("loss") != std::string::npos);
    }
    if (loss || layers == 0 || remedy == Remedy::kAttention) continue;
    if (softmax) remedy = Remedy::kAttention;
    if (!softmax && (layers > 1 || !o.converted)) remedy = Remedy::kSplitInLayer;
  }
  return remedy;
}

std::string text_of(Remedy remedy, bool trains, bool of_output) {
  switch (remedy) {
    case Remedy::kLoss:
      return fmt::format(
          "compute the logits and the loss for a part of the tokens at a time (16 "
          "parts{}), or use a fused linear cross entropy",
          trains ? ", each under torch.utils.checkpoint" : "");
    case Remedy::kAttention:
      return "use torch.nn.functional.scaled_dot_product_attention, which does not build the "
             "matrix of attention scores";
    case Remedy::kOneHot:
      return "use the indices themselves (an embedding, gather) instead of a one-hot tensor";
    case Remedy::kShareMask:
      return "scaled_dot_product_attention is used already, and each layer makes a matrix for it, "
             "such as a mask or a position bias: if it is the same for all of them, make it once "
             "in each forward pass and pass it to the layers";
    case Remedy::kAutotuning:
      return "kernels are tried here once, with buffers of their own: keep what was found "
             "(TORCHINDUCTOR_CACHE_DIR on a disk that stays), or compile without max-autotune";
    case Remedy::kSplit:
    case Remedy::kSplitInLayer:
      break;
  }
  std::string text = "compute this in parts";
  if (trains) text += " (each under torch.utils.checkpoint)";
  if (of_output) text += ", or only for the positions that are used (of logits, often the last)";
  return text;
}

// What the backward pass computes in the same shape belongs to the operations that it goes through.
std::string subject_of(const Operation& o, Remedy remedy) {
  const bool one = o.named == 1 || o.blocks == 1;
  const std::string_view verb = o.failed ? "need" : "hold";
  if (remedy == Remedy::kAutotuning) return fmt::format("autotuning of kernels {}s", verb);
  if (one) return fmt::format("one operation {}s", verb);
  if (o.named == 0) return fmt::format("operations of the backward pass {}", verb);
  return fmt::format("{} operations with results of {} {}", o.named,
                     o.varies ? "about one size" : "one shape", verb);
}

// A request that failed is not part of the recorded peak.
std::string share_text(const Operation& o) {
  const std::string percent = percent_text(o.bytes, o.all_bytes);
  if (!o.failed) return percent + " of the peak";
  return fmt::format("{} of the {} that would have been in use", percent, size_text(o.all_bytes));
}

std::string blocks_text(const Operation& o) {
  const std::string largest = size_text(o.largest_bytes);
  if (o.blocks == 1) {
    return fmt::format("1 block of {}{}", largest, o.failed ? ", which did not fit" : "");
  }
  return fmt::format("{} of up to {}{}", counted(o.blocks, "block"), largest,
                     o.failed ? ", the last of which did not fit" : "");
}

std::string together_text(const DeviceEvidence& d, const std::unordered_set<uint32_t>& stacks) {
  constexpr size_t kMostPlaces = 4;
  std::set<std::string> places;
  for (const uint32_t stack : stacks) {
    if (d.roles->of(stack) == StackRole::kBackward) continue;
    const std::string place = place_of(d.process->names.stack_text(stack));
    if (place.find(".py:") != place.npos) places.insert(place);
  }
  if (places.size() < 2 || places.size() > kMostPlaces) return "";
  std::string text;
  for (const std::string& place : places) text += (text.empty() ? ", " : " and ") + place;
  return text + " together";
}

std::string shape_text(const DeviceEvidence& d, const Operation& o) {
  const std::string broadcast = broadcast_text(d, o);
  return broadcast.empty() ? pairs_text(d, o) : broadcast;
}

}  // namespace tidemark
