// How each part of a summary is stored; see summary/archive.h.
//
// A rank that is not described in detail has no lists by stack, nn.Module, name, size and age, and
// no boundaries of steps and phases: these are not stored.
#pragma once

#include "summary/archive.h"
#include "summary/summary_file.h"

namespace tidemark {

template <typename A>
void fields(A& a, Peak& p) {
  a(p.bytes, p.time_ns, p.event);
}
template <typename A>
void fields(A& a, Process& p) {
  a(p.start_ns, p.pid, p.rank, p.local_rank, p.world_size, p.parent_pid, p.host, p.command, p.job,
    p.tool_version, p.driver_version, p.framework, p.source);
}
template <typename A>
void fields(A& a, RankFacts& f) {
  a(f.process, f.info, f.host, f.job, f.first_ns, f.last_ns, f.rows, f.attached, f.largest_string);
  std::vector<uint64_t> communicators;
  std::vector<uint64_t> sequences;
  std::vector<uint64_t> ends;
  if constexpr (!A::kReads) {
    for (const CollectiveEnd& end : f.ends) {
      communicators.push_back(end.communicator);
      sequences.push_back(end.sequence);
      ends.push_back(static_cast<uint64_t>(end.end_ns));
    }
  }
  differences(a, communicators);
  differences(a, sequences);
  differences(a, ends);
  if constexpr (A::kReads) {
    f.ends.clear();
    if (communicators.size() != ends.size() || sequences.size() != ends.size()) return;
    for (size_t i = 0; i < ends.size(); ++i) {
      f.ends.push_back({communicators[i], sequences[i], static_cast<int64_t>(ends[i])});
    }
  }
}

template <typename A>
void fields(A& a, CommunicatorBytes& c) {
  a(c.id, c.name, c.ranks, c.bytes);
}
template <typename A>
void fields(A& a, NcclMemory& n) {
  a(n.rank, n.device, n.peak_bytes, n.allocations, n.user_bytes, n.host_bytes, n.communicators);
}
template <typename A>
void fields(A& a, CollectiveCall& c) {
  a(c.sequence, c.start_ns, c.size_bytes, c.function);
}
template <typename A>
void fields(A& a, CommunicatorCalls& c) {
  a(c.id, c.name, c.next, c.ran, c.ran_until_ns, c.waiting);
}
template <typename A>
void fields(A& a, DeviceHeights& h) {
  a(h.device, h.framework, h.driver);
}
template <typename A>
void fields(A& a, RankDigest& d) {
  a(d.rank, d.devices, d.nccl, d.calls, d.clock_residual_ns, d.clock_checked, d.clock_known,
    d.kept_window);
}

template <typename A>
void fields(A& a, Advice& advice) {
  a(advice.action, advice.detail, advice.saves_bytes);
}
// The severity is compared by its text.
template <typename A>
void fields(A& a, Finding& f) {
  a(f.id, f.severity, f.rank, f.pid, f.device, f.summary, f.evidence, f.frames, f.advice);
}

template <typename A>
void fields(A& a, KindShare& k) {
  a(k.kind, k.peak_bytes);
}
template <typename A>
void fields(A& a, MemoryTotals& t) {
  a(t.allocated, t.requested, t.active, t.reserved);
}
template <typename A>
void fields(A& a, LedgerLine& l) {
  a(l.owner, l.bytes);
}
template <typename A>
void fields(A& a, CardReading& r) {
  a(r.time_ns, r.used_bytes);
}
template <typename A>
void fields(A& a, Ledger& l) {
  a(l.time_ns, l.lines, l.device_used_bytes, l.not_resident_bytes, l.reading, l.shared_card);
}
template <typename A>
void fields(A& a, CategoryShare& c) {
  a(c.category, c.bytes, c.count, c.confidence);
}
template <typename A>
void fields(A& a, MemoryLimit& l) {
  a(l.bytes, l.at_least, l.source);
}
template <typename A>
void fields(A& a, StepReport& s) {
  a(s.count, s.before, s.period_ns, s.growth_bytes_per_step, s.source, s.confidence, s.full_at_step,
    s.full_in_steps, s.first_high_bytes, s.later_high_bytes);
}
template <typename A>
void fields(A& a, RunPart& p) {
  a(p.begin_ns, p.end_ns, p.lowest_bytes, p.highest_bytes, p.reserved_bytes, p.device_used_bytes,
    p.steps);
}
template <typename A>
void fields(A& a, WholeRun& r) {
  a(r.kept_from_ns, r.parts, r.points, r.allocated_peak, r.reserved_peak, r.driver_peak,
    r.device_used_peak, r.earlier_errors, r.gained_bytes, r.grows_from_ns, r.grows_until_ns,
    r.steps);
}
template <typename A>
void fields(A& a, PhaseReport& p) {
  a(p.kind, p.count, p.total_ns, p.peak);
}
template <typename A>
void fields(A& a, Fragmentation& f) {
  a(f.time_ns, f.cached_free_bytes, f.holes, f.largest_hole_bytes, f.ratio, f.releasable_bytes,
    f.peak_cost_bytes);
}
template <typename A>
void fields(A& a, OomReport& o) {
  a(o.time_ns, o.device, o.requested_bytes, o.device_free_bytes, o.stream, o.stack, o.pool, o.owner,
    o.event, o.refusals, o.layer, o.allocated_bytes, o.pending_bytes, o.reserved_bytes,
    o.largest_hole_bytes, o.frames);
}
template <typename A>
void fields(A& a, LibraryRefusals& r) {
  a(r.library, r.count, r.largest_bytes, r.last_ns);
}
template <typename A>
void fields(A& a, PushReport& p) {
  a(p.bytes, p.frames);
}
template <typename A>
void fields(A& a, DeviceReport& d) {
  a(d.device, d.name, d.uuid, d.total_bytes, d.events, d.has_framework, d.state_only,
    d.stacks_only_at_end, d.backward_without_stack);
  a(d.allocated_peak, d.requested_peak, d.reserved_peak, d.driver_peak, d.before_recording_bytes,
    d.pool_cache_bytes, d.device_used_peak, d.highest_reading_bytes, d.kinds);
  a(d.at_ns, d.at_note, d.at_totals, d.ledger, d.ledger_at_driver_peak, d.categories, d.pushed_by,
    d.limit, d.steps, d.run, d.phases, d.peak_phase, d.fragmentation);
  a(d.ooms, d.oom_count, d.library_refusals, d.alloc_retries, d.began_late, d.blocks_before_history,
    d.bytes_before_history, d.anomalies);
  std::string moment(d.fragmentation_at);
  a(moment);
  if constexpr (A::kReads) d.fragmentation_at = lasting_text(moment);
}
template <typename A>
void fields(A& a, LossReport& l) {
  a(l.events_dropped, l.entries_skipped, l.history_lost_blocks, l.stopped, l.killed, l.last_kernels,
    l.notes);
  KernelBursts& b = l.bursts;
  a(b.budget, b.kernel_cost_ns, b.measured, b.pauses, b.time_ns, b.unrecorded_ns, b.cost_ns);
}
template <typename A>
void fields(A& a, TorchPinned& t) {
  a(t.time_ns, t.held_bytes, t.in_use_bytes);
}
template <typename A>
void fields(A& a, PinnedMemory& p) {
  a(p.driver_peak, p.torch);
}
template <typename A>
void fields(A& a, RankReport& r) {
  a(r.rank, r.world_size, r.host, r.pid, r.cupti, r.loss, r.devices, r.pinned, r.detailed);
}

template <typename A>
void fields(A& a, CoarseCurve& c) {
  a(c.device, c.of_driver, c.requests_known, c.begin_ns, c.end_ns);
  for (std::vector<uint64_t>& value : c.most) differences(a, value);
}
template <typename A>
void fields(A& a, RankSummary& s) {
  a(s.facts, s.digest, s.report, s.findings, s.curves, s.frames, s.events, s.events_from_ns,
    s.first_ns, s.last_ns);
}
template <typename A>
void fields(A& a, Damage& d) {
  a(d.blocks, d.rows, d.skipped_bytes, d.truncated, d.unfinished);
}
template <typename A>
void fields(A& a, FileIdentity& i) {
  a(i.bytes, i.changed_ns, i.tail);
}
template <typename A>
void fields(A& a, FileSummary& f) {
  a(f.identity, f.group, f.notes, f.damage, f.unknown_blocks, f.ranks);
}

}  // namespace tidemark
