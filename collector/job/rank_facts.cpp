#include "collector/job/rank_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <set>
#include <string_view>

#include "proto/base/hash.h"
#include "proto/read/block_decoder.h"
#include "proto/read/nccl_kernels.h"

namespace tidemark {

namespace {

// These collectives end at the same instant on every rank: none can finish before all have
// contributed. The root of a broadcast, for example, may finish long before the others.
bool ends_together(std::string_view function) {
  return function == "AllReduce" || function == "AllGather" || function == "ReduceScatter" ||
         function == "AlltoAll";
}

// Forged times must not overflow when they are subtracted.
bool sane(int64_t time_ns) {
  constexpr int64_t kLatestNs = int64_t{1} << 61;
  return time_ns > -kLatestNs && time_ns < kLatestNs;
}

uint64_t hash_of(uint64_t sequence) {
  return mix_bits(sequence + kGoldenRatio);
}

std::vector<CollectiveEnd> sampled(std::map<uint64_t, std::vector<CollectiveEnd>> by_communicator) {
  std::vector<std::vector<CollectiveEnd>> groups;
  for (auto& [id, ends] : by_communicator) groups.push_back(std::move(ends));
  std::stable_sort(groups.begin(), groups.end(),
                   [](const auto& a, const auto& b) { return a.size() > b.size(); });
  if (groups.size() > kMostCommunicators) groups.resize(kMostCommunicators);
  std::vector<CollectiveEnd> sample;
  for (std::vector<CollectiveEnd>& ends : groups) {
    if (ends.size() > kEndsPerCommunicator) {
      std::nth_element(ends.begin(), ends.begin() + kEndsPerCommunicator, ends.end(),
                       [](const CollectiveEnd& a, const CollectiveEnd& b) {
                         return hash_of(a.sequence) < hash_of(b.sequence);
                       });
      ends.resize(kEndsPerCommunicator);
    }
    sample.insert(sample.end(), ends.begin(), ends.end());
  }
  std::sort(sample.begin(), sample.end(), [](const CollectiveEnd& a, const CollectiveEnd& b) {
    return a.communicator != b.communicator ? a.communicator < b.communicator
                                            : a.sequence < b.sequence;
  });
  return sample;
}

class FactReader {
 public:
  FactReader(const TraceReader& reader, uint32_t process)
      : reader_(reader), decoder_(reader), process_(process) {}

  RankFacts read(bool ends) {
    facts_.process = process_;
    facts_.first_ns = INT64_MAX;
    facts_.last_ns = INT64_MIN;
    bool has_operations = false;
    for (const BlockRef& ref : reader_.blocks_of(process_)) {
      facts_.rows += ref.rows;
      has_operations |= ref.kind == BlockKind::kNcclOperations;
      if (ref.kind < BlockKind::kDriverEvents || ref.kind >= BlockKind::kAlignments) continue;
      if (sane(ref.first_ns)) facts_.first_ns = std::min(facts_.first_ns, ref.first_ns);
      if (sane(ref.last_ns)) facts_.last_ns = std::max(facts_.last_ns, ref.last_ns);
    }
    if (facts_.first_ns > facts_.last_ns) facts_.first_ns = facts_.last_ns = 0;
    facts_.info.rank = -1;
    for_each_block<Process>(reader_, decoder_, process_, [&](auto rows, const BlockRef&) {
      if (!rows.empty()) facts_.info = rows.back();  // the last one is the most complete
    });
    for_each_block<Setting>(reader_, decoder_, process_, [&](auto rows, const BlockRef&) {
      for (const Setting& s : rows) {
        if (s.scope == SettingScope::kTool) tool_settings_.insert(s.key);
      }
    });
    read_strings();
    if (ends && has_operations) read_ends();
    return std::move(facts_);
  }

 private:
  void read_strings() {
    for (const BlockRef& ref : reader_.blocks_of(process_)) {
      if (ref.kind != BlockKind::kStrings) continue;
      decoder_.strings(ref, [&](uint32_t id, std::string_view text) {
        facts_.largest_string = std::max(facts_.largest_string, id);
        if (id == facts_.info.host) facts_.host = text;
        if (id == facts_.info.job) facts_.job = text;
        facts_.attached |= text == "attached" && tool_settings_.contains(id);
        if (is_nccl_kernel(text)) kernel_names_.insert(id);
        if (ends_together(text)) functions_.insert(id);
      });
    }
  }

  // CUPTI reports dropped records, but not which kernels are missing.
  bool kernels_dropped() {
    bool dropped = false;
    for_each_block<Health>(reader_, decoder_, process_, [&](auto rows, const BlockRef&) {
      for (const Health& h : rows) dropped |= h.kind == HealthKind::kRecordsDroppedByCupti;
    });
    return dropped;
  }

  void read_ends() {
    std::vector<NcclOperation> operations;
    for_each_block<NcclOperation>(reader_, decoder_, process_, [&](auto rows, const BlockRef&) {
      operations.insert(operations.end(), rows.begin(), rows.end());
    });
    const bool has_gpu_times =
        std::any_of(operations.begin(), operations.end(),
                    [](const NcclOperation& op) { return op.gpu_start_ns != 0; });
    if (!has_gpu_times && (kernels_dropped() || !join(operations))) return;
    std::map<uint64_t, std::vector<CollectiveEnd>> ends;
    for (const NcclOperation& op : operations) {
      if (op.kind != NcclKind::kCollective || op.gpu_start_ns == 0 || op.communicator == 0 ||
          !functions_.contains(op.function) || !sane(op.gpu_start_ns) ||
          op.gpu_duration_ns > (uint64_t{1} << 60)) {
        continue;
      }
      ends[op.communicator].push_back({op.communicator, op.sequence,
                                       op.gpu_start_ns + static_cast<int64_t>(op.gpu_duration_ns)});
    }
    facts_.ends = sampled(std::move(ends));
  }

  bool join(std::vector<NcclOperation>& operations) {
    std::vector<Kernel> kernels;
    for_each_block<Kernel>(reader_, decoder_, process_, [&](auto rows, const BlockRef&) {
      for (const Kernel& kernel : rows) {
        if (kernel.graph_node == 0 && kernel_names_.contains(kernel.name))
          kernels.push_back(kernel);
      }
    });
    std::vector<Mark> marks;
    for_each_block<Mark>(reader_, decoder_, process_, [&](auto rows, const BlockRef&) {
      std::copy_if(rows.begin(), rows.end(), std::back_inserter(marks),
                   [](const Mark& m) { return m.kind == MarkKind::kNotRecorded; });
    });
    const auto unrecorded = unrecorded_stretches(marks, facts_.first_ns, facts_.last_ns);
    return join_nccl_kernels(operations, kernels, unrecorded).exact;
  }

  const TraceReader& reader_;
  BlockDecoder decoder_;
  uint32_t process_;
  RankFacts facts_;
  std::set<uint32_t> kernel_names_;
  std::set<uint32_t> functions_;
  std::set<uint32_t> tool_settings_;  // keys
};

}  // namespace

std::string RankFacts::label() const {
  std::string text = info.rank >= 0 ? fmt::format("rank {}", info.rank) : std::string("process");
  if (host.empty()) return fmt::format("{} (pid {})", text, info.pid);
  return fmt::format("{} ({}, pid {})", text, host, info.pid);
}

std::vector<RankFacts> read_rank_facts(const TraceReader& reader, bool ends) {
  std::set<uint32_t> processes;
  for (const BlockRef& ref : reader.blocks()) processes.insert(ref.process);
  std::vector<RankFacts> all;
  for (const uint32_t process : processes) all.push_back(FactReader(reader, process).read(ends));
  return all;
}

}  // namespace tidemark
