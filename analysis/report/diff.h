// Two reports compared: two runs, or two ranks of one. What grew, by category, owner, nn.Module
// and stack.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/report/report.h"

namespace tidemark {

struct DiffLine {
  std::string name;                        // of a peak, category, owner or nn.Module
  std::vector<std::string> frames;         // of a stack, innermost first
  std::vector<std::string> before_frames;  // if its lines or files were others; else empty
  uint64_t before_bytes = 0;
  uint64_t after_bytes = 0;
  bool before_history = false;  // allocated before the recording began: no stack can be known
  bool before_known = true;     // false: that side did not record it, its bytes are 0
  bool after_known = true;

  bool comparable() const { return before_known && after_known; }
  int64_t change() const {
    return static_cast<int64_t>(after_bytes) - static_cast<int64_t>(before_bytes);
  }
};

struct DeviceDiff {
  int64_t before_rank = -1;
  int64_t after_rank = -1;
  // Where several processes have this rank and device: of a restarted rank, or without ranks; else
  // 0.
  uint64_t before_pid = 0;
  uint64_t after_pid = 0;
  int64_t before_device = 0;
  int64_t after_device = 0;
  bool state_only = false;           // both are states without a history: there is no peak
  std::vector<DiffLine> peaks;       // in a fixed order
  std::vector<DiffLine> categories;  // greatest change first, as in the lists below
  std::vector<DiffLine> owners;
  std::vector<DiffLine> modules;  // nn.Modules; none unless both recordings know them
  // The same as a tree, of what changed. Amounts: before, after.
  std::vector<ModuleRow> layers;
  std::vector<DiffLine> stacks;  // only those that changed
};

struct Diff {
  std::string before_path;
  std::string after_path;
  std::vector<DeviceDiff> devices;
  std::vector<std::string> unpaired;  // devices that only one of them has, one sentence each
  std::vector<std::string> appeared;  // ids of findings at warning or above
  std::vector<std::string> disappeared;
  std::vector<std::string> notes_appeared;  // ids of notes
  std::vector<std::string> notes_disappeared;
  // Then what is only in the other one may have been in this one, too.
  bool before_has_losses = false;
  bool after_has_losses = false;
  std::vector<std::string> losses;  // of both, one sentence each
  // What the peaks are of, where a recording is a kept window; files compared with renamed ones.
  std::vector<std::string> notes;
};

// "rank 1 (pid 42) cuda:0"; without a pid if it is 0.
std::string diff_place(int64_t rank, uint64_t pid, int64_t device);

// Devices are paired by rank and device; of one rank each, by device; and one device each in any
// case. An error when there is no pair.
Result<Diff> compare(const Report& before, const Report& after);

}  // namespace tidemark
