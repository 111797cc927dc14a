#include "analysis/findings/causes/layer_blocks.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <unordered_set>

namespace tidemark {

namespace {

constexpr size_t kLeastLayers = 3;

// The blocks of one line, of one size or nearly so.
struct Line {
  size_t blocks = 0;
  uint64_t bytes = 0;
  uint64_t smallest = UINT64_MAX;
  uint64_t largest = 0;
  std::unordered_set<uint32_t> modules;

  bool repeats(bool knows_modules) const {
    return blocks >= kLeastLayers && largest - smallest <= largest / 32 &&
           (!knows_modules || modules.size() == blocks);
  }
};

}  // namespace

LayerBlocks blocks_of_layers(const DeviceEvidence& d, std::span<const size_t> rows) {
  const AllocationColumns& all = d.model->allocations;
  const bool knows_modules = d.process->names.nn_module_count() > 1;
  std::map<uint32_t, Line> lines;  // by stack
  uint64_t bytes = 0;
  for (const size_t i : rows) {
    bytes += all.block_bytes(i);
    if (d.roles->of(all.stack(i)) != StackRole::kForward) continue;
    Line& line = lines[all.stack(i)];
    ++line.blocks;
    line.bytes += all.block_bytes(i);
    line.smallest = std::min(line.smallest, all.block_bytes(i));
    line.largest = std::max(line.largest, all.block_bytes(i));
    line.modules.insert(all.nn_module(i));
  }
  std::erase_if(lines, [&](const auto& line) { return !line.second.repeats(knows_modules); });
  LayerBlocks found;
  uint64_t repeated = 0;
  for (const auto& [stack, line] : lines) {
    repeated += line.bytes;
    found.largest_bytes = std::max(found.largest_bytes, line.largest);
    if (line.blocks <= found.layers) continue;
    found.layers = line.blocks;
    found.stack = stack;
    found.bytes = line.largest;
  }
  // A loop of the program may repeat one line as well.
  const bool of_layers = knows_modules || lines.size() > 1;
  found.are_most = of_layers && repeated >= bytes / 4 * 3;
  return found;
}

// The kernels of PyTorch, xFormers, flash-attn and cuDNN: fmha_cutlassF_…, flash_fwd_kernel,
// cudnn_generated_fort_native_sdpa_sm90_flash_fprop_….
bool has_fused_attention(const Dictionary& names) {
  constexpr std::array<std::string_view, 4> kKernels = {"fmha_", "flash_fwd", "flash_fprop",
                                                        "_sdpa_"};
  for (uint32_t id = 1; id < names.string_count(); ++id) {
    const std::string_view name = names.string(id);
    if (std::any_of(kKernels.begin(), kKernels.end(), [&](std::string_view part) {
          return name.find(part) != std::string_view::npos;
        })) {
      return true;
    }
  }
  // A program may have a function of this name that builds the scores.
  for (uint32_t id = 1; id < names.frame_count(); ++id) {
    const Frame& frame = names.frame(id);
    if (frame.kind == FrameKind::kNative &&
        names.string(frame.function).find("scaled_dot_product") != std::string_view::npos) {
      return true;
    }
  }
  return false;
}

}  // namespace tidemark
