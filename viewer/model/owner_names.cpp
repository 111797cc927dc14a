#include "viewer/model/owner_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace tidemark::view {

namespace {

struct Name {
  std::string_view owner;
  std::string_view title;
  std::string_view meaning;
};

constexpr Name kNames[] = {
    {"torch.allocated", "PyTorch, in use", "Blocks that PyTorch's allocator handed to tensors."},
    {"torch.pending", "PyTorch, pending free",
     "Freed by the program, but another stream may still be using it."},
    {"torch.cached", "PyTorch, cached",
     "Reserved by PyTorch's allocator and not in use: holes in its segments."},
    {"torch.other", "PyTorch, outside its allocator",
     "Allocated from the driver by PyTorch outside of its caching allocator."},
    {"torch.not_resident", "PyTorch, asleep", "asleep: counted by torch, not on the card"},
    {"torch", "PyTorch", "Allocated from the driver by PyTorch."},
    {"nccl", "NCCL", "Buffers and channels of NCCL's communicators."},
    {"nccl.user", "NCCL, for the program", "Allocated by the program with ncclMemAlloc."},
    {"program", "the program", "Allocated by the program's own code."},
    {"unknown", "unknown owner", "Allocated by code that could not be named."},
    {"pool.cached", "driver pools, cached",
     "Kept by the driver's memory pools (cudaMallocAsync) for later use."},
    {"graph.cached", "CUDA graphs, cached", "Kept by the driver for memory nodes of CUDA graphs."},
    {"pre_attach", "before attaching",
     "Already held by the process when tidemark attached: contexts, libraries, the program."},
    {"tidemark", "tidemark", "Used on the card by the recording itself."},
    {"other_processes", "other processes", "Used on this card by other processes (NVML)."},
    {"pinned_host", "pinned host memory", "Memory of the host that the driver pinned."},
    {"context", "CUDA context",
     "Used since the first context was created and never freed: the driver's own memory."},
    {"code", "loaded code", "Kernels loaded since then, estimated from the size of their files."},
    {"unexplained", "unexplained",
     "Reported as used by the card, but not by anything that was recorded. Negative where the "
     "card's sample is older than the recorded changes."},
};

const Name* find(std::string_view owner) {
  const auto* it = std::find_if(std::begin(kNames), std::end(kNames),
                                [&](const Name& n) { return n.owner == owner; });
  return it == std::end(kNames) ? nullptr : it;
}

}  // namespace

std::string in_words(std::string_view id) {
  std::string words(id);
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

std::string stream_text(uint64_t stream) {
  constexpr uint64_t kLeastHandle = 100'000;  // handles are addresses
  if (stream == 0) return "default stream";
  return stream < kLeastHandle ? fmt::format("stream {}", stream)
                               : fmt::format("stream {:#x}", stream);
}

std::string stream_text(uint64_t stream, uint32_t pool) {
  const std::string name = stream_text(stream);
  return pool == 0 ? name : fmt::format("private pool {}, {}", pool, name);
}

std::string owner_title(std::string_view owner) {
  const Name* name = find(owner);
  return std::string(name == nullptr ? owner : name->title);
}

std::string_view owner_meaning(std::string_view owner) {
  const Name* name = find(owner);
  return name == nullptr ? "Allocated from the driver by this library." : name->meaning;
}

std::string how_steps_were_detected(const Steps& steps) {
  if (steps.source == StepSource::kNone || steps.source == StepSource::kMarks) return "";
  const std::string_view from = steps.source == StepSource::kRhythm ? "repeated allocations"
                                : steps.source == StepSource::kLoop ? "the program's loop"
                                                                    : "collectives";
  return fmt::format("detected from {}, {:.0f} % confidence", from, 100 * steps.confidence);
}

}  // namespace tidemark::view
