#include "viewer/model/owner_names.h"

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
    {"torch.cached", "PyTorch, cached",
     "Reserved by PyTorch's allocator and not in use: holes in its segments."},
    {"torch.other", "PyTorch, beyond its allocator",
     "Taken from the driver by PyTorch outside of its caching allocator's segments."},
    {"torch", "PyTorch", "Taken from the driver by PyTorch."},
    {"nccl", "NCCL", "Buffers and channels of NCCL's communicators."},
    {"nccl.user", "NCCL, for the program", "Allocated by the program with ncclMemAlloc."},
    {"program", "the program", "Allocated by the program's own code."},
    {"unknown", "unknown owner", "Allocated by code that could not be named."},
    {"pool.cached", "driver pools, cached",
     "Kept by the driver's memory pools (cudaMallocAsync) for later use."},
    {"graph.cached", "CUDA graphs, cached", "Kept by the driver for memory nodes of CUDA graphs."},
    {"pre_attach", "before attaching",
     "Held by the process already when tidemark entered it: contexts, libraries, the program."},
    {"tidemark", "tidemark", "What recording itself takes on the card."},
    {"other_processes", "other processes", "Used on this card by other processes (NVML)."},
    {"context", "CUDA context",
     "Used from the first context on and never given back: the driver's own share."},
    {"code", "loaded code", "Kernels loaded since then, by the size of their files."},
    {"unexplained", "unexplained",
     "Used, as the card says, but by nothing that was recorded. Negative where the card's sample "
     "lags behind."},
};

const Name* find(std::string_view owner) {
  const auto* it = std::find_if(std::begin(kNames), std::end(kNames),
                                [&](const Name& n) { return n.owner == owner; });
  return it == std::end(kNames) ? nullptr : it;
}

}  // namespace

std::string owner_title(std::string_view owner) {
  const Name* name = find(owner);
  return std::string(name == nullptr ? owner : name->title);
}

std::string_view owner_meaning(std::string_view owner) {
  const Name* name = find(owner);
  return name == nullptr ? "Taken from the driver by this library." : name->meaning;
}

}  // namespace tidemark::view
