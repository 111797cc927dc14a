// A whole trace in memory, for tests.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "proto/read/block_decoder.h"
#include "proto/read/trace_reader.h"

namespace tidemark::test {

struct TraceContents {
  std::map<uint32_t, std::string> strings;
  std::vector<Module> modules;
  std::vector<Frame> frames;
  std::vector<Stack> stacks;
  std::vector<Thread> threads;
  std::vector<DriverEvent> driver_events;
  std::vector<FrameworkEvent> framework_events;
  std::vector<ClockSample> clock_samples;
  std::vector<Counter> counters;
  std::vector<Health> health;
  std::vector<Kernel> kernels;
  std::vector<Setting> settings;
  std::vector<Mark> marks;
  std::vector<uint32_t> repeated_strings;  // ids that occur twice
  Damage damage;

  uint64_t health_sum(HealthKind kind) const {
    uint64_t sum = 0;
    for (const Health& row : health) sum += row.kind == kind ? row.value : 0;
    return sum;
  }
  size_t health_rows(HealthKind kind) const {
    size_t count = 0;
    for (const Health& row : health) count += row.kind == kind ? 1 : 0;
    return count;
  }
};

inline TraceContents read_trace(const std::string& path) {
  TraceContents all;
  Result<TraceReader> reader = TraceReader::open(path);
  if (!reader) {
    ADD_FAILURE() << reader.error().message;
    return all;
  }
  BlockDecoder decoder(*reader);
  const auto load = [&]<typename Row>(std::vector<Row>& out) {
    for_each_block<Row>(*reader, decoder, 0, [&](std::span<const Row> rows, const BlockRef&) {
      out.insert(out.end(), rows.begin(), rows.end());
    });
  };
  for (const BlockRef& ref : reader->blocks()) {
    if (ref.kind != BlockKind::kStrings) continue;
    decoder.strings(ref, [&](uint32_t id, std::string_view text) {
      if (!all.strings.emplace(id, text).second) all.repeated_strings.push_back(id);
    });
  }
  load(all.modules);
  load(all.frames);
  load(all.stacks);
  load(all.threads);
  load(all.driver_events);
  load(all.framework_events);
  load(all.clock_samples);
  load(all.counters);
  load(all.health);
  load(all.kernels);
  load(all.settings);
  load(all.marks);
  all.damage = reader->damage();
  all.damage += decoder.damage();
  return all;
}

// The rows of one table.
template <typename Row>
std::vector<Row> rows_of(const std::string& path) {
  std::vector<Row> out;
  auto reader = TraceReader::open(path);
  if (!reader) return out;
  BlockDecoder decoder(*reader);
  for_each_block<Row>(*reader, decoder, 0, [&](std::span<const Row> rows, const BlockRef&) {
    out.insert(out.end(), rows.begin(), rows.end());
  });
  return out;
}

}  // namespace tidemark::test
