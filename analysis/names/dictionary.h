// Names of one process: strings, frames and the tree of stacks, by the ids its events carry.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "proto/read/block_decoder.h"

namespace tidemark {

class Dictionary {
 public:
  // Reads the rows of `process`. Ids that no recorder would assign are dropped and counted.
  static Dictionary load(const TraceReader& reader, BlockDecoder& decoder, uint32_t process);

  std::string_view string(uint32_t id) const;
  const Frame& frame(uint32_t id) const;
  // The file of a frame as it was recorded: string() has '/' in paths of Windows.
  std::string_view recorded_file(const Frame& frame) const;

  // Frame ids of a stack, innermost first.
  std::vector<uint32_t> frames_of(uint32_t stack) const;
  // "function file:line"; for native code also "function library" or "library+0xoffset".
  std::string frame_text(uint32_t frame) const;
  std::vector<std::string> stack_text(uint32_t stack) const;

  const Module& module(uint32_t id) const;
  const NnModule& nn_module(uint32_t id) const;
  // Path of an nn.Module. Where several trees have modules, with the class of the tree's root; of a
  // root, or if its path is not known, the class alone.
  std::string nn_module_text(uint32_t id) const;
  // The stack with the same frames that names no nn.Module.
  uint32_t plain_stack(uint32_t stack) const;

  // For naming frames whose name is not in the trace (analysis/names/resolver.h).
  uint32_t add_string(std::string_view text);
  void name_frame(uint32_t frame, uint32_t function, uint32_t file, int64_t line);

  size_t string_count() const { return strings_.size(); }
  size_t frame_count() const { return frames_.size(); }
  size_t nn_module_count() const { return nn_modules_.size(); }
  size_t stack_count() const { return stacks_.size(); }
  const Stack& stack(uint32_t id) const;
  uint64_t dropped() const { return dropped_; }

 private:
  void find_plain_stacks();
  void make_paths_alike();
  void name_roots();

  struct Text {
    uint64_t offset = 0;
    uint32_t size = 0;
  };

  std::string text_bytes_;
  std::vector<Text> strings_;
  std::vector<Frame> frames_;
  std::vector<Stack> stacks_;
  std::vector<Module> modules_;
  std::vector<NnModule> nn_modules_;
  std::unordered_map<uint32_t, std::string> windows_paths_;  // as recorded
  std::vector<uint32_t> plain_stacks_;                       // by stack; empty: they all are
  bool several_roots_ = false;                               // have children
  uint64_t dropped_ = 0;
};

}  // namespace tidemark
