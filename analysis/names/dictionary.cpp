#include "analysis/names/dictionary.h"

#include <fmt/format.h>
#include <algorithm>
#include <type_traits>
#include <unordered_map>

namespace tidemark {

namespace {

// Recorders number from 1 without gaps; lost blocks leave gaps, but never more than this.
uint64_t greatest_id(const TraceReader& reader, BlockKind kind, uint32_t process) {
  uint64_t rows = 0;
  for (const BlockRef& ref : reader.blocks_of(process)) {
    if (ref.kind == kind) rows += ref.rows;
  }
  return rows == 0 ? 0 : 2 * rows + (1 << 16);
}

// Stores a row at its id, unless the id is implausible.
template <typename Row>
bool put(std::vector<Row>& rows, const Row& row, uint64_t limit) {
  if (row.id == 0 || row.id > limit) return false;
  if (row.id >= rows.size()) rows.resize(row.id + 1);
  if constexpr (std::is_same_v<Row, NnModule>) {
    if (row.root == 0 && rows[row.id].root != 0) return true;  // its path was known already
  }
  rows[row.id] = row;
  return true;
}

template <typename Row>
uint64_t load_rows(const TraceReader& reader, BlockDecoder& decoder, uint32_t process,
                   std::vector<Row>& out) {
  const uint64_t limit = greatest_id(reader, Table<Row>::kind, process);
  uint64_t dropped = 0;
  for_each_block<Row>(reader, decoder, process, [&](std::span<const Row> rows, const BlockRef&) {
    for (const Row& row : rows) {
      if (!put(out, row, limit)) ++dropped;
    }
  });
  return dropped;
}

template <typename Row>
const Row& at(const std::vector<Row>& rows, uint32_t id) {
  static const Row none{};
  return id < rows.size() ? rows[id] : none;
}

}  // namespace

Dictionary Dictionary::load(const TraceReader& reader, BlockDecoder& decoder, uint32_t process) {
  Dictionary d;
  const uint64_t limit = greatest_id(reader, BlockKind::kStrings, process);
  for (const BlockRef& ref : reader.blocks_of(process)) {
    if (ref.kind != BlockKind::kStrings) continue;
    decoder.strings(ref, [&](uint32_t id, std::string_view text) {
      if (id == 0 || id > limit) {
        ++d.dropped_;
        return;
      }
      if (id >= d.strings_.size()) d.strings_.resize(id + 1);
      d.strings_[id] = {d.text_bytes_.size(), static_cast<uint32_t>(text.size())};
      d.text_bytes_.append(text);
    });
  }
  d.dropped_ += load_rows(reader, decoder, process, d.frames_);
  d.dropped_ += load_rows(reader, decoder, process, d.stacks_);
  d.dropped_ += load_rows(reader, decoder, process, d.modules_);
  d.dropped_ += load_rows(reader, decoder, process, d.nn_modules_);
  for (uint32_t id = 0; id < d.stacks_.size(); ++id) {
    // A stack is recorded after its parent; anything else could form a cycle.
    if (d.stacks_[id].parent >= id) d.stacks_[id].parent = 0;
    // Users of frame ids may size tables by them.
    if (d.stacks_[id].frame >= d.frames_.size()) d.stacks_[id].frame = 0;
  }
  d.find_plain_stacks();
  d.name_roots();
  d.make_paths_alike();
  return d;
}

// Paths of Windows read like all others.
void Dictionary::make_paths_alike() {
  for (const Frame& frame : frames_) {
    const std::string_view recorded = string(frame.file);
    if (recorded.find('\\') == std::string_view::npos) continue;
    windows_paths_.try_emplace(frame.file, recorded);
    const auto path =
        text_bytes_.begin() + static_cast<std::ptrdiff_t>(strings_[frame.file].offset);
    std::replace(path, path + strings_[frame.file].size, '\\', '/');
  }
}

std::string_view Dictionary::recorded_file(const Frame& frame) const {
  const auto windows = windows_paths_.find(frame.file);
  return windows != windows_paths_.end() ? windows->second : string(frame.file);
}

std::string_view Dictionary::string(uint32_t id) const {
  if (id >= strings_.size()) return {};
  return std::string_view(text_bytes_).substr(strings_[id].offset, strings_[id].size);
}

const Frame& Dictionary::frame(uint32_t id) const {
  return at(frames_, id);
}

const Stack& Dictionary::stack(uint32_t id) const {
  return at(stacks_, id);
}

const NnModule& Dictionary::nn_module(uint32_t id) const {
  return at(nn_modules_, id);
}

void Dictionary::find_plain_stacks() {
  for (Stack& s : stacks_) {
    if (s.nn_module >= nn_modules_.size()) s.nn_module = 0;
  }
  if (std::none_of(stacks_.begin(), stacks_.end(), [](const Stack& s) { return s.nn_module != 0; }))
    return;
  const auto key = [](const Stack& s) { return (uint64_t{s.parent} << 32) | s.frame; };
  std::unordered_map<uint64_t, uint32_t> plain;
  plain_stacks_.resize(stacks_.size());
  for (uint32_t id = 0; id < stacks_.size(); ++id) {
    plain_stacks_[id] = id;
    if (stacks_[id].nn_module == 0) plain.try_emplace(key(stacks_[id]), id);
  }
  for (uint32_t id = 0; id < stacks_.size(); ++id) {
    if (stacks_[id].nn_module == 0) continue;
    // The row of the plain one may be lost; the first of its twins then stands for all.
    plain_stacks_[id] = plain.try_emplace(key(stacks_[id]), id).first->second;
  }
}

void Dictionary::name_roots() {
  uint32_t first = 0;
  for (const NnModule& m : nn_modules_) {
    if (m.root == 0 || string(m.path).empty()) continue;
    if (first == 0) first = m.root;
    several_roots_ |= string(nn_module(m.root).class_name) != string(nn_module(first).class_name);
  }
}

uint32_t Dictionary::plain_stack(uint32_t id) const {
  return id < plain_stacks_.size() ? plain_stacks_[id] : id;
}

std::string Dictionary::nn_module_text(uint32_t id) const {
  const NnModule& m = nn_module(id);
  const std::string_view path = string(m.path);
  if (path.empty()) return std::string(string(m.class_name));
  if (!several_roots_) return std::string(path);
  return fmt::format("{}.{}", string(nn_module(m.root).class_name), path);
}

const Module& Dictionary::module(uint32_t id) const {
  return at(modules_, id);
}

uint32_t Dictionary::add_string(std::string_view text) {
  if (text.empty()) return 0;
  if (strings_.empty()) strings_.resize(1);  // 0 is none
  strings_.push_back({text_bytes_.size(), static_cast<uint32_t>(text.size())});
  text_bytes_.append(text);
  return static_cast<uint32_t>(strings_.size() - 1);
}

void Dictionary::name_frame(uint32_t id, uint32_t function, uint32_t file, int64_t line) {
  if (id == 0 || id >= frames_.size()) return;
  frames_[id].function = function;
  frames_[id].file = file;
  frames_[id].line = line;
}

std::vector<uint32_t> Dictionary::frames_of(uint32_t id) const {
  // Recorders store fewer frames, and Python's recursion ends at 1000. A forged file could have as
  // many as it has stacks.
  constexpr size_t kDeepest = 2048;
  std::vector<uint32_t> frames;
  for (; id != 0 && id < stacks_.size() && frames.size() < kDeepest; id = stacks_[id].parent) {
    frames.push_back(stacks_[id].frame);
  }
  return frames;
}

std::string Dictionary::frame_text(uint32_t id) const {
  const Frame& f = frame(id);
  const std::string_view function = string(f.function);
  const std::string_view file = string(f.file);
  if (file.empty() && f.module != 0) {
    std::string_view library = string(module(f.module).path);
    library.remove_prefix(library.rfind('/') + 1);
    return function.empty() ? fmt::format("{}+{:#x}", library, f.offset)
                            : fmt::format("{} {}", function, library);
  }
  if (file.empty()) return std::string(function);
  if (f.line <= 0) return fmt::format("{} {}", function, file);
  return fmt::format("{} {}:{}", function, file, f.line);
}

std::vector<std::string> Dictionary::stack_text(uint32_t id) const {
  std::vector<std::string> lines;
  for (const uint32_t frame_id : frames_of(id)) lines.push_back(frame_text(frame_id));
  return lines;
}

}  // namespace tidemark
