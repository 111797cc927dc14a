// A serving process whose weights sleep piece by piece, with pinned host memory: told so that the
// viewer opens while a part is asleep.
#pragma once

#include <memory>

#include "tests/support/story.h"
#include "tests/support/transformer_run.h"
#include "viewer/model/trace/view_model.h"

namespace tidemark::view {

inline void tell_serving(Story& s) {
  s.alloc(24 * kMiB, s.user(10));  // a segment of PyTorch's own
  const uint64_t whole = s.alloc(40 * kMiB, s.user(20));
  s.map(whole, 40 * kMiB);
  const uint64_t parts = s.alloc(48 * kMiB, s.user(21));
  for (const uint64_t piece : {0U, 16U, 32U}) s.map(parts + piece * kMiB, 16 * kMiB);
  s.driver_alloc(64 * kMiB, "torch", MemoryKind::kPinned, 0, 0, s.user(40));
  s.driver_alloc(32 * kMiB, "program", MemoryKind::kPinned, 0, 0, s.user(41));
  s.counter(CounterKind::kTorchPinnedInUse, 40 * kMiB, 0, -1);
  s.counter(CounterKind::kTorchPinned, 64 * kMiB, 0, -1);
  s.unmap(whole, 40 * kMiB);
  s.unmap(parts + 16 * kMiB, 16 * kMiB);
  s.alloc(12 * kMiB, s.user(30));  // the peak
}

// A model of the viewer from a story of one process.
template <typename Tell>
std::shared_ptr<const Model> told_model(Tell&& tell) {
  MemorySink sink;
  TraceWriter writer(sink);
  Story story(writer, 1);
  tell(story);
  writer.finish();
  const Result<TraceReader> reader = open_bytes_as_trace(sink.bytes);
  Result<TraceModel> trace = load_trace({&*reader, 1});
  auto model = make_model(std::move(*trace), {});
  return std::shared_ptr<const Model>(std::move(*model));
}

// The same from a transformer.
inline std::shared_ptr<const Model> layered_model(const test::TransformerShape& shape) {
  const test::TransformerRun run(shape);
  const Result<TraceReader> reader = open_bytes_as_trace(run.bytes());
  Result<TraceModel> trace = load_trace({&*reader, 1});
  auto model = make_model(std::move(*trace), {});
  return std::shared_ptr<const Model>(std::move(*model));
}

}  // namespace tidemark::view
